"""`runwire chat` in a terminal of its own, beside a whole system."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runwire.cli.conftest import ROOT
from tests.support.needs import needs_program

LIMIT_S = 60


class Terminal:
    """A command in a terminal: what it has printed, and what a person types."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        env = {**os.environ, "RUNWIRE_DATA_DIR": str(data), "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-P", "-m", "runwire", *arguments]
        # The terminal must be the one of its session, or Ctrl-C reaches nobody.
        self._process = subprocess.Popen(
            [needs_program("setsid"), "--ctty", *command], env=env, cwd=data, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.text = ""
        self._seen = 0

    def shows(self, *texts: str) -> None:
        """Wait for texts, one behind the other."""
        for text in texts:
            end = time.monotonic() + LIMIT_S
            while text not in self.text[self._seen :]:
                assert time.monotonic() < end, f"{text!r} is not shown: {self.text[self._seen :]!r}"
                self._read()
            self._seen = self.text.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        """Type a line, or a control character."""
        os.write(self._ours, text.encode() if len(text) == 1 and text < " " else f"{text}\r".encode())

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        code = self._process.wait(LIMIT_S)
        self._read()
        return code

    def close(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            piece = os.read(self._ours, 65536).decode(errors="replace")
            self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", piece)
            return
        time.sleep(0.02)


CTRL_C, CTRL_D = "\x03", "\x04"
SLOW = "Which region grew most in sales.csv? Draw a chart."


@pytest.fixture
def terminal(up: Path) -> Iterator[Terminal]:
    """A new conversation."""
    opened = Terminal(up, "chat")
    yield opened
    opened.close()


@pytest.mark.xdist_group("cli")
def test_questions_and_answers(terminal: Terminal) -> None:
    """Until Ctrl-D; what it prints last continues the session."""
    terminal.shows("session chat-", "you> ")
    terminal.type("What is 17*23?")
    terminal.shows("→ calculate", "17*23 = 391", "answer_complete", "you> ")
    terminal.type(CTRL_D)
    assert terminal.ended() == 0
    terminal.shows("chat --session chat-")


@pytest.mark.xdist_group("cli")
def test_ctrl_c_offers_to_steer_and_leaves_at_the_second_time(terminal: Terminal) -> None:
    """The run goes on."""
    terminal.shows("you> ")
    terminal.type(SLOW)
    terminal.shows("→ analyze_table")
    terminal.type(CTRL_C)
    terminal.shows("Type what to add", "add> ")
    terminal.type(CTRL_C)
    assert terminal.ended() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.xdist_group("cli")
def test_ctrl_c_cancels_the_run_and_not_the_conversation(terminal: Terminal) -> None:
    """With `/cancel`; the next question is answered."""
    terminal.shows("you> ")
    terminal.type(SLOW)
    terminal.shows("→ analyze_table")
    terminal.type(CTRL_C)
    terminal.shows("add> ")
    terminal.type("/cancel")
    terminal.shows("cancelled", "you> ")
    terminal.type("What is 6*7?")
    terminal.shows("6*7 = 42", "you> ")


@pytest.mark.xdist_group("cli")
def test_ctrl_c_at_the_prompt_leaves(terminal: Terminal) -> None:
    """Without a traceback."""
    terminal.shows("you> ")
    terminal.type(CTRL_C)
    assert terminal.ended() == 130
    assert "Traceback" not in terminal.text
