"""The example consumers in TypeScript and Go follow a real stream: all of a run, in order, once, whatever is lost on the way."""

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from contracts import subjects
from contracts.events import Asked, Chunk, Done, RunEvent
from contracts.ids import new_id
from contracts.records import EVENTS_HEADER, Record
from services.runtime.streams import STREAMS
from tests.examples.conftest import Start, program
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

RUNS: dict[str, Any] = next(stream for stream in STREAMS if stream["name"] == subjects.RUNS)
TENANT = "default"
LANGUAGES = [pytest.param(language, marks=pytest.mark.xdist_group(language)) for language in ("typescript", "go")]


class Run:
    """A run that is being written, and what a consumer must show of it."""

    def __init__(self, client: Client) -> None:
        self.id = new_id()
        self.expected: list[str] = []
        self._client = client

    async def write(self, subject: str, *events: RunEvent) -> None:
        """Append one record."""
        record = Record(events=list(events))
        stored = await self._client.request(subject, record.model_dump_json().encode(), headers={EVENTS_HEADER: record.types()})
        sequence = json.loads(stored.data)["seq"]
        kind = subject.rsplit(".", 1)[1]
        self.expected += [f"{kind} {sequence} {event.type}" for event in events]

    async def ask(self, turn: int) -> None:
        """Write a fact."""
        await self.write(subjects.log(TENANT, self.id), Asked(turn=turn, attempt=1, by="INBOX:1", holder="h"))

    async def say(self, seq: int) -> None:
        """Write a token."""
        await self.write(subjects.stream(TENANT, self.id), Chunk(seq=seq, text=f"word {seq} ", action_seq=1, attempt=1))

    async def end(self) -> None:
        """Write the terminal fact, in one record with another."""
        done = Done(raw_answer="words", reason="answer_complete")
        await self.write(subjects.log(TENANT, self.id), Asked(turn=9, attempt=1, by="INBOX:1", holder="h"), done)


class Watching:
    """A consumer's process and the lines that it has printed."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    @property
    def shown(self) -> list[str]:
        """Kind, sequence and type of each event."""
        return [" ".join(line.split(" ", 3)[:3]) for line in self.lines]

    async def shows(self, expected: list[str]) -> None:
        """Wait until this and nothing else is shown."""
        await wait_until(lambda: len(self.lines) >= len(expected), timeout=30, what=f"{len(expected)} events were shown")
        assert self.shown == expected

    async def ends(self) -> None:
        """Wait until the process has ended well."""
        async with asyncio.timeout(30):
            assert await self.process.wait() == 0
            await self._reading


@pytest.fixture
async def writer(own_nats_server: NatsServer) -> AsyncIterator[Client]:
    """A connection of the one who writes runs, on a server with the stream of runs."""
    async with await nats.connect(own_nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05) as client:
        await api(client, "CREATE", RUNS)
        yield client


async def api(client: Client, verb: str, config: dict[str, Any]) -> None:
    """Create or update the stream of runs."""
    answer = json.loads((await client.request(f"$JS.API.STREAM.{verb}.RUNS", json.dumps(config).encode(), timeout=5)).data)
    assert "error" not in answer


async def unheard(client: Client, *writes: Any) -> None:
    """Let the server store without telling listeners, as when a live message is lost on its way."""
    await api(client, "UPDATE", {**RUNS, "republish": None})
    for write in writes:
        await write
    await api(client, "UPDATE", RUNS)


@pytest.fixture(params=LANGUAGES)
def watch(request: pytest.FixtureRequest) -> list[str]:
    """The command of the consumer in one language."""
    return program(request.getfixturevalue(request.param), "watch")


async def test_the_past_and_the_present_of_a_run(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """More than a page of stored events, then live ones, in the order of the whole stream; other runs are not shown."""
    run, other = Run(writer), Run(writer)
    for n in range(60):
        await run.ask(n)
        for word in range(9):
            await run.say(word)
        await other.ask(n)
    watching = Watching(await start([*watch, run.id], own_nats_server))
    await watching.shows(run.expected)

    for n in range(20):
        await run.say(n)
        await other.say(n)
        await run.ask(n)
    await watching.shows(run.expected)
    assert json.loads(watching.lines[1].split(" ", 3)[3])["text"] == "word 0 "

    await other.end()
    await run.end()
    await watching.ends()
    assert watching.shown == run.expected


async def test_a_gap_is_read_back(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """What was lost on one subject comes before what follows it, and nothing comes twice."""
    run = Run(writer)
    await run.ask(1)
    watching = Watching(await start([*watch, run.id], own_nats_server))
    await watching.shows(run.expected)

    await unheard(writer, run.say(1), run.ask(2), run.say(2))
    await run.say(3)
    await watching.shows(run.expected)

    await unheard(writer, run.say(4))
    await run.end()
    await watching.ends()
    assert watching.shown == run.expected


async def test_a_lost_last_event_is_found(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """It has no successor that would show the gap: the consumer looks by itself."""
    run = Run(writer)
    await run.ask(1)
    watching = Watching(await start([*watch, run.id], own_nats_server))
    await watching.shows(run.expected)
    await unheard(writer, run.say(1), run.end())
    await watching.ends()
    assert watching.shown == run.expected


async def test_a_restarted_server_costs_no_event(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """The consumer comes back and reads what it missed."""
    run = Run(writer)
    await run.ask(1)
    watching = Watching(await start([*watch, run.id], own_nats_server))
    await watching.shows(run.expected)
    own_nats_server.kill()
    own_nats_server.start()
    await wait_until(lambda: writer.is_connected, what="the writer was back")
    for n in range(5):
        await run.say(n)
    await watching.shows(run.expected)
    await run.end()
    await watching.ends()
    assert watching.shown == run.expected


async def test_what_is_not_stored_is_not_shown(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """Somebody writes to the live subject directly."""
    run = Run(writer)
    await run.ask(1)
    watching = Watching(await start([*watch, run.id], own_nats_server))
    await watching.shows(run.expected)
    forged = Record(events=[Done(raw_answer="no", reason="answer_complete")])
    await writer.publish(subjects.live_log(TENANT, run.id), forged.model_dump_json().encode())
    await writer.publish(subjects.live_log(TENANT, run.id), b"no json")
    await run.end()
    await watching.ends()
    assert watching.shown == run.expected


@pytest.mark.parametrize("arguments", [[], ["*"], ["0" * 31], ["0" * 32, "Not.A.Tenant"]])
async def test_wildcards_are_refused(watch: list[str], arguments: list[str], start: Start, nats_server: NatsServer) -> None:
    """Nobody can be made to follow more than one run."""
    process = await start([*watch, *arguments], nats_server)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"usage" in said
