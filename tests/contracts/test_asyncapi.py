"""`contracts/asyncapi.json` describes every subject, and the official parser takes it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from contracts import asyncapi
from contracts.__main__ import ASYNCAPI, SUBJECTS_PAGE, stale
from contracts.asyncapi import CHANNELS, bodies, body, document
from contracts.runs.inbox import InboxMessage
from contracts.sessions.records import SessionMessage
from contracts.wire.base import Message
from services.artifact_store.assembler import Assembler
from services.artifact_store.handlers import build_router
from services.artifact_store.store import ArtifactStore
from tests.contracts.wire.examples import RUN, TABLE
from tests.support.builds import INSTALL, build, built_once
from tests.support.needs import needs_program

CHECK = Path(__file__).parent / "asyncapi"


def test_every_row_is_described_by_its_own_messages() -> None:
    """One name means one message: a model of ours, or a JSON Schema where the content is another's."""
    assert {*CHANNELS} == {*TABLE}
    assert len({row.name for row in TABLE}) == len(TABLE)
    named = {name for row in TABLE for name in (*row.carries, *row.replies)}
    assert {each.name for each in asyncapi.BODIES} <= named
    assert all(issubclass(each.schema, Message) for each in map(body, named) if isinstance(each.schema, type))


def test_every_request_that_a_service_answers_is_described() -> None:
    """The subjects on which handlers are registered."""

    class Uploads:
        instance = RUN

    store, assembler = object.__new__(ArtifactStore), object.__new__(Assembler)
    router = build_router(store, Uploads(), assembler, 1)  # type: ignore[arg-type]
    heard = {subscriber.subject.template for subscriber in router.subscribers}  # type: ignore[attr-defined]
    assert len(heard) == 8
    for subject in heard:
        assert any(row.begins(subject) and row.replies for row in CHANNELS), subject


@pytest.mark.parametrize(
    ("names", "messages"),
    [(("inbox", "control"), InboxMessage), (("session_inbox",), SessionMessage)],
    ids=["runs", "sessions"],
)
def test_every_message_that_a_planner_takes_is_described(names: tuple[str, ...], messages: object) -> None:
    """A new one is added to its row in `contracts/wire/subjects.py`."""
    described = {each.schema for row in CHANNELS if row.name in names for each in bodies(row.carries).values()}
    assert described == set(get_args(get_args(messages)[0]))


def test_the_file_is_what_the_contracts_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python -m contracts` writes it and the page of subjects, and `--check` misses them."""
    assert json.loads(ASYNCAPI.read_text(encoding="utf-8")) == document()
    monkeypatch.setattr("contracts.__main__.schemas", dict)  # tests/contracts/test_schemas.py compares them
    monkeypatch.setattr("contracts.__main__.FOLDER", tmp_path / "schemas")
    for name, file in (("ASYNCAPI", ASYNCAPI), ("SUBJECTS_PAGE", SUBJECTS_PAGE)):
        with monkeypatch.context() as changed:
            other = tmp_path / file.name
            changed.setattr(f"contracts.__main__.{name}", other)
            assert [path.name for path in stale()] == [file.name]
            other.write_text(file.read_text(encoding="utf-8").replace("planner", "plannner", 1))
            assert [path.name for path in stale()] == [file.name]


@pytest.fixture(scope="session")
def parser(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that reads a document with AsyncAPI's own parser, at the version of the lock."""
    node, npm = needs_program("node"), needs_program("npm")
    with built_once(tmp_path_factory, "asyncapi") as (folder, to_do):
        if to_do:
            shutil.copytree(CHECK, folder, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
            build([str(npm), *INSTALL], folder)
    return [str(node), str(folder / "check.mjs")]


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_the_official_parser_takes_it(parser: list[str], tmp_path: Path) -> None:
    """Without an error (severity 0) or a warning (1); a document that is wrong is refused, so it does look."""
    broken, one = tmp_path / "broken.json", document() | {"channels": {}, "components": {}}
    broken.write_text(json.dumps(one | {"operations": {"call": {"action": "shout", "channel": {"address": "x"}}}}))
    ran = subprocess.run([*parser, ASYNCAPI, broken], capture_output=True, text=True, check=True, timeout=240)
    seen, refused = json.loads(ran.stdout)
    assert [each for each in seen["found"] if each["severity"] < 2] == []
    assert {address for address in seen["channels"] if address is not None} == {row.channel for row in CHANNELS}
    assert seen["operations"] == len(document()["operations"])
    assert [each for each in refused["found"] if "action" in each["path"]]


def test_the_lock_names_no_registry() -> None:
    """Versions and hashes only, so that everybody installs from where they like."""
    lock = (CHECK / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "//registry" not in lock
