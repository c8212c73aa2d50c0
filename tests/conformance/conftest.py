"""Turns files of vectors into tests: `pytest tests/conformance --vectors DIR`.

The README tells what a file and an adapter look like.
"""

import importlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .adapters import _whole_run

HERE = Path(__file__).parent
ADAPTERS = HERE / "adapters"
OWN_VECTORS = HERE / "vectors"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer another folder of vectors; it may hold any of the topics."""
    parser.addoption(
        "--vectors",
        metavar="DIR",
        default=None,
        help=f"folder of <topic>.json files (default: {OWN_VECTORS.name} beside the tests)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Say which topics are run and which are not."""
    folder = vectors_folder(config)
    topics = sorted({topic_of(path) for path in files(folder)})
    run = [topic for topic in topics if adapter(topic)]
    ignored = [topic for topic in topics if not adapter(topic)]
    summary = f"vectors: {folder}: {', '.join(run) or 'no topic'}"
    return summary + (f"; ignored, no adapter: {', '.join(ignored)}" if ignored else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "vector" in metafunc.fixturenames:
        metafunc.parametrize(("adapter", "vector"), list(cases(vectors_folder(metafunc.config))))


def pytest_unconfigure() -> None:
    """End what vectors of whole runs have started."""
    _whole_run.stop()


def vectors_folder(config: pytest.Config) -> Path:
    """The folder asked for.

    Where this file was read too late for options (`pytest` without a path), the vectors of the repository.
    """
    asked = config.getoption("--vectors", default=None)
    folder = Path(asked) if asked else OWN_VECTORS
    if not folder.is_dir():
        raise pytest.UsageError(f"--vectors: {folder} is no folder")
    return folder


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


@cache
def topic_of(path: Path) -> str:
    """What a file is about: its name where that is a topic, else what it says itself.

    So a topic may have several files.
    """
    if adapter(path.stem):
        return path.stem
    try:
        said = json.loads(path.read_text(encoding="utf-8-sig"))["topic"]
    except (ValueError, KeyError, TypeError):
        said = None
    return said if isinstance(said, str) and adapter(said) else path.stem


@cache
def adapter(topic: str) -> ModuleType | None:
    """The module that checks a topic; None where there is none.

    Only files in `adapters` count, so no topic can name another module.
    """
    known = {path.stem for path in ADAPTERS.glob("*.py") if not path.stem.startswith("_")}
    return importlib.import_module(f"tests.conformance.adapters.{topic}") if topic in known else None


def cases(folder: Path) -> Iterator[Any]:
    """The vectors of all topics, each with its adapter; a topic without one is a single skipped test that says so."""
    for path in files(folder):
        topic = topic_of(path)
        module = adapter(topic)
        if module is None:
            skip = pytest.mark.skip(reason=f"{path.name} is ignored: there is no tests/conformance/adapters/{topic}.py")
            yield pytest.param(None, {}, id=f"{topic}::no-adapter", marks=skip)
            continue
        for number, vector in enumerate(read(path)):
            yield pytest.param(module, vector, id=f"{topic}::{vector.get('name', number)}")


def read(path: Path) -> list[dict[str, Any]]:
    """The vectors of one file, each with what the file says of all of them."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8-sig"))
        return [{"file": whole, **vector} for vector in whole["vectors"]]
    except (ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(f"{path} is no file of vectors: {error!r}") from error
