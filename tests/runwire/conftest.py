"""What the tests of the client and of the command line do beside one `runwire up`."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from runwire.cli.app import app
from tests.support.server_process import ends_with_block
from tests.support.up import UP_S, environment
from tests.support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command has ended, and what it has printed."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """What is on stderr as one line, without the frame of a wrong command line."""
        return " ".join(self.stderr.replace("│", " ").split())


def runwire(*arguments: str, data: Path, stdin: str | None = None, **env: str) -> Ended:
    """Run a command to its end in this process: a Python process for each takes most of a test's time."""
    with contextlib.chdir(data):
        ended = CliRunner().invoke(app, arguments, stdin, {"RUNWIRE_DATA_DIR": str(data)} | env, prog_name="runwire")
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


def printed(*arguments: str, data: Path, stdin: str | None = None) -> str:
    ended = runwire(*arguments, data=data, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def document(*arguments: str, data: Path) -> Any:
    return json.loads(printed(*arguments, "-o", "json", data=data))


def started(*arguments: str, data: Path, **env: str) -> Ended:
    """Run a command to its end in a process of its own."""
    command = [sys.executable, "-P", "-m", "runwire", *arguments]
    ended = subprocess.run(
        command, env=environment(data) | env, capture_output=True, text=True, timeout=60, check=False, cwd=data
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def _quiet_services() -> Iterator[None]:
    """Services in this process log nothing, so that what a command prints is all that is on stdout."""
    with capture_logs():
        yield


@pytest.fixture(scope="session")
def slow_tools(up: Path) -> Iterator[None]:
    """Two tools more: one that ends when a test lets it, and one that asks a person."""
    files = [Path(__file__).parent / "pondering_tool.py", ROOT / "examples" / "quickstart" / "asking_tool.py"]
    command = [sys.executable, "-P", "-m", "runwire", "serve", *map(str, files)]
    process = subprocess.Popen(command, env=environment(up), cwd=up)

    def are_offered() -> bool:
        return {"ponder", "paint"} <= {line.split()[0] for line in runwire("tools", data=up).stdout.splitlines()}

    with ends_with_block(process):
        wait_until_blocking(are_offered, timeout=UP_S, what="both are offered")
        yield
