"""The files of the checkout, for the tests that check them all."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.needs import skip

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout that git keeps or would keep."""
    if not (ROOT / ".git").exists():
        skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file() and not path.is_symlink())


def python_files(*folders: str) -> Iterator[tuple[Path, str]]:
    """Path below the root and text of every Python file, or of those in `folders`."""
    for path in files():
        below = path.relative_to(ROOT)
        if path.suffix == ".py" and (not folders or below.parts[0] in folders):
            yield below, path.read_text(encoding="utf-8")


@cache
def parsed(text: str) -> ast.Module:
    """A file as a tree, which no test changes."""
    return ast.parse(text)


def imported(text: str) -> Iterator[str]:
    """The absolute module names that a file imports."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
