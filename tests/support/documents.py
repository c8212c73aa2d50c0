"""What a page of docs shows, carried out: its commands in one shell, its Python as a program."""

import ast
import asyncio
import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

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
    """Run commands in a folder, with `.venv/bin` on the path, and return what they print."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment}
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    shell = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", commands, env=env, cwd=folder, stdin=none, stdout=pipe, stderr=pipe
    )
    printed, complaints = await asyncio.wait_for(shell.communicate(), LIMIT_S)
    assert shell.returncode == 0, (printed.decode(), complaints.decode())
    return printed.decode()
