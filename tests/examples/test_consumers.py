"""The listeners in TypeScript and Go show all of a run, in order and once, with a listener's rights and a gateway."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
import pytest

from contracts.runs.events import Asked, Done
from contracts.wire import subjects
from contracts.wire.records import Record
from contracts.wire.rights import OPERATOR
from services.messaging.connection import Bus
from services.messaging.streams import STREAMS, provision
from tests.examples.conftest import EXAMPLES, Running, Start, bus_of, new_credential, program
from tests.support.buses import processed
from tests.support.gateways import Writer, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

RUNS: dict[str, Any] = next(stream for stream in STREAMS if stream["name"] == subjects.RUNS)


@pytest.fixture
def server(users_server: NatsServer) -> NatsServer:
    return users_server


@pytest.fixture
async def credential(server: NatsServer) -> dict[str, str]:
    """The credential of the listener of the tenant `default`."""
    return await new_credential(server, lambda known: known.add_listener("default"))


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    bus = await bus_of(server, OPERATOR)
    await provision(bus)
    yield bus
    await bus.leave()


@pytest.fixture
async def gateway(server: NatsServer, bus: Bus) -> AsyncIterator[str]:
    assert bus.is_connected
    login = server.login(OPERATOR)
    async with serving(server.url, nats_user=OPERATOR, nats_password=login["password"]) as served:
        yield served.url


@pytest.fixture(params=["typescript", "go"])
def watch(request: pytest.FixtureRequest) -> list[str]:
    return program(request.getfixturevalue(request.param), "watch")


Watch = Callable[..., Awaitable[Running]]


@pytest.fixture
def watching(watch: list[str], start: Start, server: NatsServer, credential: dict[str, str]) -> Watch:
    """Starts the consumer of a run with the credential of a listener: the server's URL alone has no login."""

    async def started(run: str, **environment: str) -> Running:
        return await start([*watch, run], server, **credential, **environment)

    return started


def asked(turn: int) -> Asked:
    return Asked(turn=turn, attempt=1, by="INBOX:1", holder="h")


def shown(watching: Running) -> list[str]:
    """Kind, sequence and type of each event that a consumer has printed."""
    return [" ".join(line.split(" ", 3)[:3]) for line in watching.lines]


def expected(writer: Writer) -> list[str]:
    return [f"{kind} {sequence} {event.type}" for kind, sequence, record in writer.stored for event in record.events]


async def shows(watching: Running, writer: Writer) -> None:
    """Wait until all of the run and nothing else is shown."""
    count = len(expected(writer))
    await wait_until(lambda: len(watching.lines) >= count, timeout=30, what=f"{count} events were shown")
    assert shown(watching) == expected(writer)


async def ends(watching: Running, writer: Writer) -> None:
    """Wait until the consumer has ended well, having shown all of the run and nothing else."""
    assert await watching.ended() == 0
    assert shown(watching) == expected(writer)


async def test_the_past_and_the_present_of_a_run(watching: Watch, bus: Bus, gateway: str) -> None:
    """Stored events, then live ones, in the order of the whole stream; other runs are not shown."""
    run, other = Writer(bus), Writer(bus)
    await run.open()
    await other.open()
    for turn in range(60):
        await run.log(asked(turn))
        for _ in range(9):
            await run.chunk("word ")
        await other.log(asked(turn))
    watched = await watching(run.run, RUNWIRE_URL=gateway)
    await wait_until(lambda: len(watched.lines) >= len(expected(run)) - 9, timeout=30, what="the facts were shown")

    for turn in range(20):
        await run.chunk("word ")
        await other.chunk("word ")
        await run.log(asked(turn))
    await shows(watched, run)
    assert json.loads(watched.lines[2].split(" ", 3)[3])["text"] == "word "

    await other.done()
    await run.done()
    await ends(watched, run)


async def test_what_is_not_stored_is_not_shown(watching: Watch, server: NatsServer, bus: Bus) -> None:
    """Somebody writes to the live subject directly, or stores what was read from another subject."""
    run, forged = Writer(bus), Record(events=[Done(raw_answer="no", reason="answer_complete")])
    await run.open()
    watched = await watching(run.run)
    await wait_until(lambda: len(watched.lines) == 1, timeout=30, what="the first record was shown")
    live = subjects.live_log("default", run.run)
    twice = ["Nats-Subject: emit.default.x.log", f"Nats-Subject: emit.default.{run.run}.log"]
    async with await nats.connect(server.url, **server.login(OPERATOR)) as client:
        await client.publish(live, forged.model_dump_json().encode())
        await client.publish(live, b"no json")
        await processed(client)
    await publish_raw(server, live, twice, forged.model_dump_json().encode())
    await run.done()
    await ends(watched, run)


async def publish_raw(server: NatsServer, subject: str, lines: list[str], body: bytes) -> None:
    """Publish with headers that no client library writes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    headers = "\r\n".join(["NATS/1.0", "Nats-Sequence: 999999", *lines, "", ""]).encode()
    login = server.login(OPERATOR)
    connect = {"verbose": False, "headers": True, "user": login["user"], "pass": login["password"]}
    writer.write(
        f"CONNECT {json.dumps(connect)}\r\nHPUB {subject} {len(headers)} {len(headers) + len(body)}\r\n".encode()
    )
    writer.write(headers + body + b"\r\nPING\r\n")
    while b"PONG" not in await reader.readline():
        pass
    writer.close()
    await writer.wait_closed()


async def test_a_listener_receives_its_own_tenant_alone(server: NatsServer, bus: Bus, start: Start) -> None:
    """The facts of all its runs, and nothing of another tenant's."""
    own, others = Writer(bus), Writer(bus, "other")
    credential = await new_credential(server, lambda known: known.add_listener("default"))
    listener = [sys.executable, str(EXAMPLES / "quickstart" / "listener.py")]
    listening = await start([*listener, "default"], server, **credential)
    elsewhere = await start([*listener, "other"], server, **credential)
    await wait_until(lambda: listening.lines and elsewhere.lines, timeout=30, what="both have subscribed")
    for run in (others, own, others, own):
        await run.log(asked(1))
    await wait_until(lambda: len(listening.lines) == 3, what="its own run is shown")
    assert listening.lines[1:] == [f"run.default.{own.run}.log asked"] * 2
    assert elsewhere.lines == ["listening"]
