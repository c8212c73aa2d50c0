"""A tool in one line of shell, on the command `nats`: the project that `runwire new` makes, as its README says."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.runwire.conftest import printed
from tests.support.needs import needs_program
from tests.support.up import environment
from tests.support.waiting import wait_until_blocking


@pytest.mark.chaos  # It needs the command `nats`, which `make test` does without.
def test_a_tool_in_one_line_of_shell(up: Path) -> None:
    """It is declared while everything runs, answers a call, and is forgotten."""
    nats = needs_program("nats")
    needs_program("jq")
    printed("new", "tool", "line_words", "--lang", "shell", data=up)
    project = up / "line_words"
    printed("tools", "declare", "line_words/tools.toml", data=up)
    login = printed("credentials", "tool", "line_words", "--url", data=up).strip()
    path = f"{nats.parent}{os.pathsep}{os.environ['PATH']}"
    serving = subprocess.Popen(
        [project / "serve.sh"], env=environment(up) | {"NATS_URL": login, "PATH": path}, start_new_session=True
    )
    try:
        assert '"words": 3' in printed("call", "line_words", '{"text": "a b c"}', "-o", "json", data=up)
    finally:
        serving.terminate()
        serving.wait(30)
    printed("tools", "forget", "line_words", data=up)
    wait_until_blocking(lambda: "line_words" not in printed("tools", data=up), timeout=30, what="it is gone")
