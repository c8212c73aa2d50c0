"""What a page of docs shows, carried out: its commands in one shell, its Python as a program."""

import ast
import asyncio
import inspect
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from runwire.cli import main
from tests.support.forked import Forked

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
"""Seconds for all commands of a page."""


def text_of(document: str) -> str:
    """The text of a page, named below `docs`."""
    return (ROOT / "docs" / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(document), re.MULTILINE | re.DOTALL)


def rows(document: str, *heads: str) -> list[list[str]]:
    """The cells of the table with these heads, row by row."""
    table = text_of(document).partition(f"| {' | '.join(heads)} |\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def in_code(text: str) -> list[str]:
    """What stands in code in a text."""
    return re.findall(r"`([^`]+)`", text)


async def run_python(document: str, names: dict[str, Any]) -> None:
    """Run the blocks of Python, which may await, one after another, as a reader would."""
    for code in blocks(document, "python"):
        compiled = compile(code, f"docs/{document}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(compiled, names)  # noqa: S307, the code is ours
        if inspect.isawaitable(waiting):
            await waiting


async def run_commands(commands: str, folder: Path, **environment: str) -> str:
    """Run commands in a folder, with `.venv/bin` on the path, and return what they print.

    `runwire` is forked from a process that has imported it: its imports take most of the time of such a page.
    """
    with tempfile.TemporaryDirectory() as own:
        script = Path(own) / "runwire"
        script.write_text(f"#!{sys.executable} -IS\nPLACE = {own + '/forks'!r}\n{_ASKS}")
        script.chmod(0o700)
        path = f"{own}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment}
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        async with await asyncio.start_unix_server(_fork, f"{own}/forks", limit=1 << 20):
            shell = await asyncio.create_subprocess_exec(
                "bash", "-euo", "pipefail", "-c", commands, env=env, cwd=folder, stdin=none, stdout=pipe, stderr=pipe
            )
            printed, complaints = await asyncio.wait_for(shell.communicate(), LIMIT_S)
    assert shell.returncode == 0, (printed.decode(), complaints.decode())
    return printed.decode()


_ASKS = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(PLACE)
    asked.sendall(json.dumps([os.getpid(), os.getcwd(), dict(os.environ), sys.argv]).encode() + b"\\n")
    sys.exit(int(asked.recv(9)))
"""


async def _fork(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pid, folder, environment, argv = json.loads(await reader.readline())
    command = Forked(f"{__name__}:run_as", pid, argv, environment=environment, folder=Path(folder))
    code = await asyncio.to_thread(command.wait)
    writer.write(b"%d" % (code if code is not None and code >= 0 else 1))
    writer.close()


def run_as(pid: int, argv: list[str]) -> None:
    """Be a command of the `runwire` script, in place of the process that was started as one: with its files."""
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(f"/proc/{pid}/fd/{number}", mode), number)
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
    sys.argv = argv
    main()
