"""Marks with `unit` the tests that need no server and start no process. `make unit` runs only those.

Rule 1: a test is marked unless its module, or one that defines a fixture it uses, imports something that starts or
reaches a server (`STARTERS`), directly or through other modules of `tests/`. So a new test is in the right set without
a mark that could be forgotten.
Rule 2: under `-m unit` a marked test that starts a process after all fails.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Imports of a module that starts processes or speaks with servers, or that imports modules by name (importlib).
STARTERS = ("benchmarks", "httpx", "importlib", "multiprocessing", "nats", "socket", "subprocess", "uvicorn")

#: Fixtures of every test, which start nothing although they share a file with those that do.
EVERYWHERE = {"_clean_environment", "_collected", "_guard", "_no_server"}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, in full: `from a.b import c` gives `a.b` and `a.b.c`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def needs_a_server(path: Path) -> bool:
    """Whether a file of the tests imports something that starts or reaches a server."""
    for name in set(imported(path)):
        if name.partition(".")[0] in STARTERS or name.endswith(".__main__"):
            return True
        found = ROOT / Path(*name.split(".")).with_suffix(".py")
        if name.startswith("tests.") and found.is_file() and needs_a_server(found):
            return True
    return False


def fixtures_of(item: pytest.Function) -> Iterable[Any]:
    """The definitions of all fixtures that a test uses, also through others."""
    found = item._fixtureinfo.name2fixturedefs
    return (definition for name, definitions in found.items() if name not in EVERYWHERE for definition in definitions)


def is_unit(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or needs_a_server(item.path):
        return False
    files = [Path(definition.func.__code__.co_filename) for definition in fixtures_of(item)]
    beside = item.path.with_name("conftest.py")
    if beside.is_file() and "def pytest_generate_tests" in beside.read_text(encoding="utf-8"):
        files.append(beside)  # It hands values to the test without a fixture.
    return not any(file.is_relative_to(ROOT / "tests") and needs_a_server(file) for file in files)


class Guard:
    """Fails a test that starts a process while the guard is on. Python has no way to remove such a hook again."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and event in {"subprocess.Popen", "os.posix_spawn", "os.fork"}:
            raise RuntimeError(
                f"a unit test may not cause `{event}`: {args!r:.200}. Import what starts a process at module level"
            )
