"""The listeners in TypeScript and Go show all of a run, in order and once, whatever is lost on the way."""

import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from contracts import subjects
from contracts.events import Asked, Chunk, Done, RunEvent
from contracts.ids import new_id
from contracts.records import EVENTS_HEADER, Record
from services.messaging.streams.definitions import STREAMS
from tests.examples.conftest import Running, Start, program
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

RUNS: dict[str, Any] = next(stream for stream in STREAMS if stream["name"] == subjects.RUNS)
TENANT = "default"


class Run:
    """A run that is being written, and what a consumer must show of it."""

    def __init__(self, client: Client) -> None:
        self.id = new_id()
        self.expected: list[str] = []
        self.client = client

    async def write(self, subject: str, *events: RunEvent) -> None:
        """Append one record."""
        record = Record(events=list(events))
        stored = await self.client.request(
            subject, record.model_dump_json().encode(), headers={EVENTS_HEADER: record.types()}
        )
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


def shown(watching: Running) -> list[str]:
    """Kind, sequence and type of each event that a consumer has printed."""
    return [" ".join(line.split(" ", 3)[:3]) for line in watching.lines]


async def shows(watching: Running, run: Run) -> None:
    """Wait until all of the run and nothing else is shown."""
    await wait_until(
        lambda: len(watching.lines) >= len(run.expected), timeout=30, what=f"{len(run.expected)} events were shown"
    )
    assert shown(watching) == run.expected


async def ends(watching: Running, run: Run) -> None:
    """Wait until the consumer has ended well, having shown all of the run and nothing else."""
    assert await watching.ended() == 0
    assert shown(watching) == run.expected


@pytest.fixture
async def writer(own_nats_server: NatsServer) -> AsyncIterator[Client]:
    """A connection of the one who writes runs, on a server with the stream of runs."""
    async with await nats.connect(own_nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05) as client:
        await api(client, "CREATE", RUNS)
        yield client


async def api(client: Client, verb: str, config: dict[str, Any]) -> None:
    """Create or update the stream of runs."""
    answer = json.loads(
        (await client.request(f"$JS.API.STREAM.{verb}.RUNS", json.dumps(config).encode(), timeout=5)).data
    )
    assert "error" not in answer


async def without_live_messages(client: Client, *writes: Any) -> None:
    """Let the server store without telling listeners, as when a live message is lost on its way."""
    await api(client, "UPDATE", {**RUNS, "republish": None})
    for write in writes:
        await write
    await api(client, "UPDATE", RUNS)


@pytest.fixture(params=["typescript", "go"])
def watch(request: pytest.FixtureRequest) -> list[str]:
    """The command of the consumer in one language."""
    return program(request.getfixturevalue(request.param), "watch")


async def test_the_past_and_the_present_of_a_run(
    watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start
) -> None:
    """More than a page of stored events, then live ones, in the order of the whole stream; other runs are not shown."""
    run, other = Run(writer), Run(writer)
    for n in range(60):
        await run.ask(n)
        for word in range(9):
            await run.say(word)
        await other.ask(n)
    watching = await start([*watch, run.id], own_nats_server)
    await shows(watching, run)

    for n in range(20):
        await run.say(n)
        await other.say(n)
        await run.ask(n)
    await shows(watching, run)
    assert json.loads(watching.lines[1].split(" ", 3)[3])["text"] == "word 0 "

    await other.end()
    await run.end()
    await ends(watching, run)


async def test_a_gap_is_read_back(watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start) -> None:
    """What was lost on one subject comes before what follows it, and nothing comes twice."""
    run = Run(writer)
    await run.ask(1)
    watching = await start([*watch, run.id], own_nats_server)
    await shows(watching, run)

    await without_live_messages(writer, run.say(1), run.ask(2), run.say(2))
    await run.say(3)
    await shows(watching, run)

    await without_live_messages(writer, run.say(4))
    await run.end()
    await ends(watching, run)


async def test_a_lost_last_event_is_found(
    watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start
) -> None:
    """It has no successor that would show the gap: the consumer looks by itself."""
    run = Run(writer)
    await run.ask(1)
    watching = await start([*watch, run.id], own_nats_server)
    await shows(watching, run)
    await without_live_messages(writer, run.say(1), run.end())
    await ends(watching, run)


async def test_a_restarted_server_costs_no_event(
    watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start
) -> None:
    """The consumer comes back and reads what it missed."""
    run = Run(writer)
    await run.ask(1)
    watching = await start([*watch, run.id], own_nats_server)
    await shows(watching, run)
    own_nats_server.kill()
    own_nats_server.start()
    async with await nats.connect(own_nats_server.url) as again:
        run.client = again
        for n in range(5):
            await run.say(n)
        await shows(watching, run)
        await run.end()
        await ends(watching, run)


async def test_what_is_not_stored_is_not_shown(
    watch: list[str], writer: Client, own_nats_server: NatsServer, start: Start
) -> None:
    """Somebody writes to the live subject directly."""
    run = Run(writer)
    await run.ask(1)
    watching = await start([*watch, run.id], own_nats_server)
    await shows(watching, run)
    forged = Record(events=[Done(raw_answer="no", reason="answer_complete")])
    await writer.publish(subjects.live_log(TENANT, run.id), forged.model_dump_json().encode())
    await writer.publish(subjects.live_log(TENANT, run.id), b"no json")
    await run.end()
    await ends(watching, run)


@pytest.mark.parametrize("arguments", [[], ["*"], ["0" * 31], ["0" * 32, "Not.A.Tenant"]])
async def test_wildcards_are_refused(
    watch: list[str], arguments: list[str], start: Start, nats_server: NatsServer
) -> None:
    """Nobody can be made to follow more than one run."""
    refused = await start([*watch, *arguments], nats_server)
    assert await refused.ended() == 2
    assert "usage" in refused.complaints[0]
