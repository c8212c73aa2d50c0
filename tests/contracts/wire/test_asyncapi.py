"""`contracts/asyncapi.json` describes every subject, and the official parser takes it."""

import inspect
import json
import re
import shutil
import subprocess
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import pytest

from contracts.__main__ import ASYNCAPI, stale
from contracts.runs.inbox import InboxMessage
from contracts.sessions.records import SessionMessage
from contracts.wire import keys, subjects
from contracts.wire.asyncapi import document
from contracts.wire.base import Message
from contracts.wire.channel import SERVICES, Body, Channel
from contracts.wire.channels import CHANNELS, NO_SUBJECTS
from services.artifact_store.handlers import build_router
from services.artifact_store.store.store import ArtifactStore
from services.artifact_store.uploads.assembler import Assembler
from services.messaging.streams.definitions import BUCKETS, STREAMS, bucket
from tests.examples.conftest import build, built_once
from tests.support.needs import needs_program

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"
EXAMPLES = {
    "artifact": RUN,
    "instance": RUN,
    "key_id": "ci.main",
    "day": "20260131",
    "digest": "0" * 24,
    "key": "7",
    "message": "call-1",
    "model": "openai/gpt-4o",
    "name": "search",
    "namespace": "search",
    "own_id": "abc-123",
    "requested_at": 1_700_000_000_000,
    "run": RUN,
    "schedule": RUN,
    "sequence": 7,
    "session": "a session",
    "session_id": "a session",
    "session_key": RUN,
    "created_at": 1_700_000_000_000,
    "stream_name": "INBOX",
    "tenant": "acme",
    "tool": "search",
    "tool_instance": "VzXLDtTsuyZ0VuQyV6RpKV",
    "where": f"-.{RUN}",
}
"""A value for each argument of the builders, by its name; where a shared object's name is meant, its digest."""
CHECK = Path(__file__).parent / "asyncapi"
ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"
SENDERS, RECEIVERS = attrgetter("senders"), attrgetter("receivers")


def builders() -> dict[str, Any]:
    """The public functions of `subjects` and `keys` that return a text, and constants with a subject or pattern."""
    found = {
        name: value
        for module in (subjects, keys)
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in NO_SUBJECTS and getattr(value, "__module__", "") == module.__name__
        if inspect.isfunction(value) and inspect.signature(value).return_annotation is str
    }
    constants = {**vars(subjects), **vars(keys)}
    return found | {
        name: value for name, value in constants.items() if name.startswith(("ALL_", "ARTIFACT_", "RUNNER_"))
    }


def built(name: str) -> str:
    """What the builder gives for an example."""
    builder = builders()[name]
    if isinstance(builder, str):
        return builder
    values = {**EXAMPLES, "name": "openai/gpt-4o"} if name == "model_key" else EXAMPLES
    made: str = builder(**{argument: values[argument] for argument in inspect.signature(builder).parameters})
    return made


def fits(address: str, subject: str) -> bool:
    """Whether a subject, or a pattern over subjects, is of this address."""
    found, wanted = subject.split("."), address.split(".")
    if found[-1] == ">":
        found = found[:-1] + ["*"] * (len(wanted) - len(found) + 1)
    return len(found) == len(wanted) and all(
        theirs == "*" or (ours.startswith("{") and bool(theirs)) or theirs == ours
        for theirs, ours in zip(found, wanted, strict=True)
    )


def test_every_builder_is_described() -> None:
    """A new subject is added to `contracts/wire/channels.py`, or to `NO_SUBJECTS`; nothing gone is described."""
    described = {name for channel in CHANNELS for name in channel.built_by}
    assert described == builders().keys()
    assert all(hasattr(subjects, name) or hasattr(keys, name) for name in NO_SUBJECTS)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_the_address_is_what_its_builders_build(channel: Channel) -> None:
    """Token for token; a key stands behind the name of its bucket."""
    prefix = ".".join(channel.address.split(".")[:2]) + "." if channel.address.startswith("$KV.") else ""
    for name in channel.built_by:
        assert fits(channel.address, prefix + built(name)), (name, built(name))


@pytest.mark.parametrize("stream", [*STREAMS, *map(bucket, BUCKETS)], ids=lambda stream: stream["name"])
def test_what_a_stream_keeps_is_described(stream: dict[str, Any]) -> None:
    """Every subject of a stream's configuration has a channel that names the stream."""
    kept = [channel.address for channel in CHANNELS if channel.kept_in == stream["name"]]
    for pattern in stream["subjects"]:
        start = pattern.removesuffix(">")
        assert any(
            fits(address, pattern) or (pattern.startswith("$KV") and address.startswith(start)) for address in kept
        ), pattern


def written_table() -> dict[str, tuple[str, str]]:
    """The table of subjects in docs/architecture.md: pattern over subjects -> who writes, who reads."""
    _, _, table = ARCHITECTURE.read_text(encoding="utf-8").partition("| subject | kept in | who writes | who reads |\n")
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    return {
        re.sub(r"<\w+>", "*", subject): (writes, reads)
        for row, writes, reads in rows
        for subject in re.findall(r"`([^`]+)`", row)
    }


def services_in(cell: str) -> set[str]:
    """The services that a cell names."""
    return set(SERVICES) if "every service" in cell else {name for name in SERVICES if re.search(rf"\b{name}\b", cell)}


@pytest.mark.parametrize("cells", sorted(set(written_table().values())))
def test_the_table_of_the_documents_says_the_same(cells: tuple[str, str]) -> None:
    """Of each of its rows, all subjects together: which services write, which read."""
    patterns = [pattern for pattern, found in written_table().items() if found == cells]
    channels = [
        each for each in CHANNELS if any(fits(each.address, one) or _in_bucket(each.address, one) for one in patterns)
    ]
    assert channels, patterns
    writes, reads = (
        {role for each in channels for role in roles(each)} & set(SERVICES) for roles in (SENDERS, RECEIVERS)
    )
    assert (writes, reads) == (services_in(cells[0]), services_in(cells[1])), patterns


def _in_bucket(address: str, pattern: str) -> bool:
    return pattern.startswith("$KV.") and address.startswith(pattern.removesuffix("*"))


def test_every_request_that_a_service_answers_is_described() -> None:
    """The subjects on which handlers are registered."""

    class Uploads:
        instance = RUN

    store, assembler = object.__new__(ArtifactStore), object.__new__(Assembler)
    router = build_router(store, Uploads(), assembler, 1)  # type: ignore[arg-type]
    heard = {subscriber.subject.template for subscriber in router.subscribers}  # type: ignore[attr-defined]
    assert len(heard) == 8
    for subject in heard:
        assert any(fits(channel.address, subject) and channel.replies for channel in CHANNELS), subject


@pytest.mark.parametrize(
    ("names", "messages"),
    [(("inbox", "control"), InboxMessage), (("session_inbox",), SessionMessage)],
    ids=["runs", "sessions"],
)
def test_every_message_that_a_planner_takes_is_described(names: tuple[str, ...], messages: object) -> None:
    """A new one is added to its channel in `contracts/wire/channels.py`."""
    described = {body.schema for channel in CHANNELS if channel.name in names for body in channel.bodies}
    assert described == set(get_args(get_args(messages)[0]))


def test_one_name_means_one_message() -> None:
    """They share a table in the document."""
    bodies: dict[str, Body] = {}
    for channel in CHANNELS:
        for body in (*channel.bodies, *channel.replies):
            assert bodies.setdefault(body.name, body) == body
    assert {
        body.name for body in bodies.values() if isinstance(body.schema, type) and not issubclass(body.schema, Message)
    } == set()


def test_the_file_is_what_the_contracts_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python -m contracts` writes it, and `--check` misses it."""
    assert json.loads(ASYNCAPI.read_text(encoding="utf-8")) == document()
    other = tmp_path / "asyncapi.json"
    monkeypatch.setattr("contracts.__main__.ASYNCAPI", other)
    assert stale() == ["asyncapi.json"]
    other.write_text(ASYNCAPI.read_text(encoding="utf-8").replace("planner", "plannner", 1))
    assert stale() == ["asyncapi.json"]


@pytest.fixture(scope="session")
def parser(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that reads a document with AsyncAPI's own parser, at the version of the lock."""
    node, npm = needs_program("node"), needs_program("npm")
    with built_once(tmp_path_factory, "asyncapi") as (folder, to_do):
        if to_do:
            shutil.copytree(CHECK, folder, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
            build([str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], folder)
    return [str(node), str(folder / "check.mjs")]


def parsed(parser: list[str], file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The problems of a document (severity 0: error, 1: warning, above: advice), and what the parser found in it."""
    ran = subprocess.run([*parser, str(file)], capture_output=True, text=True, check=True, timeout=120)
    said = json.loads(ran.stdout)
    return [each for each in said["found"] if each["severity"] < 2], said


@pytest.mark.timeout(300)
def test_the_official_parser_takes_it(parser: list[str], tmp_path: Path) -> None:
    """Without an error or a warning; a document that is wrong is refused, so it does look."""
    wrong, seen = parsed(parser, ASYNCAPI)
    assert wrong == []
    assert {address for address in seen["channels"] if address is not None} == {channel.address for channel in CHANNELS}
    assert seen["operations"] == len(document()["operations"])
    broken = re.sub(r'"action": "send"', '"action": "shout"', ASYNCAPI.read_text(encoding="utf-8"), count=1)
    (tmp_path / "broken.json").write_text(broken)
    assert parsed(parser, tmp_path / "broken.json")[0]


def test_the_lock_names_no_registry() -> None:
    """Versions and hashes only, so that everybody installs from where they like."""
    lock = (CHECK / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "//registry" not in lock
