"""A command in a terminal of its own, and what a person sees and types there."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.needs import needs_program

LIMIT_S = 40
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """One `runwire` command."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "RUNWIRE_DATA_DIR": str(data), "PYTHONPATH": root, "TERM": "xterm", "COLUMNS": "100"}
        command = [sys.executable, "-P", "-m", "runwire", *arguments]
        # The terminal must be the one of its session, or Ctrl-C reaches nobody.
        self._process = subprocess.Popen(
            [needs_program("setsid"), "--ctty", *command],
            env=env,
            cwd=data,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # A shell starts what it runs in the background with this signal ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.raw = ""
        """All that it has printed."""
        self._seen = 0

    @property
    def text(self) -> str:
        """The same without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.raw)

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
        os.write(self._ours, text.encode() if text in {CTRL_C, CTRL_D} else f"{text}\r".encode())

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        end = time.monotonic() + LIMIT_S
        while self._process.poll() is None:
            assert time.monotonic() < end, f"it goes on: {self.text[self._seen :]!r}"
            self._read()
        self._read()
        return self._process.returncode

    def close(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self.raw += os.read(self._ours, 65536).decode(errors="replace")
            return
        time.sleep(0.02)
