"""A run's stream over HTTP: from every cursor, whole, in order and once; and nothing left behind."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from contracts.runs.events import Asked, ToolProgress
from contracts.wire.records import EVENTS_HEADER
from runwire.client.event_stream import SseDecoder
from services.messaging.connection import Bus
from tests.support.buses import provisioned
from tests.support.gateways import Heard, Served, Writer, disconnect, frames_of, heard, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

Frames = list[tuple[str, str]]


@contextlib.asynccontextmanager
async def listening(served: Served, run: str, after: str | None = None) -> AsyncIterator[Heard]:
    async with heard(served, f"/v1/runs/{run}/events", after) as (answer, events):
        assert answer.headers["runwire-run"] == run
        yield events


async def received(served: Served, run: str, after: str | None = None) -> Frames:
    """Type and id of everything that a listener gets to the end of the stream."""
    async with listening(served, run, after) as events:
        return [(event.type, event.id or "") async for event in events]


async def a_long_run(writer: Writer) -> None:
    """Some turns, with tokens, progress and records of several events."""
    await writer.open()
    for turn in range(3):
        await writer.log(Asked(turn=turn, attempt=1, by="REQUESTS:1", holder="h"))
        for text in "abc":
            await writer.chunk(text)
        await writer.stream(*(ToolProgress(call_id="1-1", tool="t", message=str(n)) for n in range(2)))


async def test_a_run_resumes_at_every_cursor(served: Served, writer: Writer) -> None:
    """A client that resumes with any id gets exactly the events after it; each subject has its own cursor."""
    await a_long_run(writer)
    await writer.done()
    everything = await received(served, writer.run)
    assert everything == frames_of(writer)
    assert everything[-2:] == [("step", ""), ("done", everything[-1][1])]
    for number, (_, cursor) in enumerate(everything[:-1]):
        if cursor:
            assert await received(served, writer.run, cursor) == everything[number + 1 :]
    last_log = [sequence for kind, sequence, _ in writer.stored if kind == "log"][-2]
    for after in ((last_log, 0), (0, writer.stored[-2][1])):  # The facts are known and the tokens not, and vice versa.
        assert await received(served, writer.run, f"{after[0]}-{after[1]}") == frames_of(writer, after)
    by_query = await served.http.get(f"/v1/runs/{writer.run}/events?last_event_id={everything[-3][1]}")
    assert by_query.text.count("event: ") == 2


async def test_a_cursor_that_is_none_is_refused(served: Served, writer: Writer) -> None:
    """Malformed, or beyond what the run has: waiting for it would never end."""
    await writer.open()
    other = Writer(writer.bus)
    theirs = await other.open(), await other.chunk("x")
    await writer.chunk("x")
    (_, log, _), (_, stream, _) = writer.stored
    of_others = (f"0-{log}", f"{stream}-0", f"{theirs[0]}-0", f"0-{theirs[1]}")
    invented = ("0-999999999", f"{stream + 1}-0", f"{2**62}-0")
    for cursor in (*of_others, *invented, "x", "1", "1-", "-1-1", "1-1-1", "9" * 25 + "-1"):
        answer = await served.http.get(f"/v1/runs/{writer.run}/events", headers={"Last-Event-ID": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), cursor


async def test_a_post_that_is_sent_again_continues_its_run(served: Served, bus: Bus) -> None:
    """Clients repeat a POST when its stream breaks. No second run begins, whatever else they send."""
    body, accept = {"query": "x"}, {"Accept": "TEXT/Event-Stream; q=1"}
    first = await served.http.post("/v1/runs", json=body, headers={"Idempotency-Key": "sent-again"})
    writer = Writer(bus, run=first.json()["run_id"])
    await a_long_run(writer)
    await writer.done()
    cursor = frames_of(writer)[0][1]
    for more in ({}, {"Idempotency-Key": "sent-again"}):
        again = await served.http.post("/v1/runs", json=body, headers={**accept, **more, "Last-Event-ID": cursor})
        assert (again.status_code, again.headers["runwire-run"]) == (200, writer.run)
        assert again.text.count("event: ") == len(frames_of(writer)) - 1
    refused = await served.http.post("/v1/runs", json=body, headers={"Accept": "text/event-stream;q=0"})
    assert refused.status_code == 202
    other = Writer(bus)
    theirs = await other.open()
    for headers, wrong, status in (
        ({}, {"query": "y"}, 409),
        ({"Idempotency-Key": "another"}, body, 400),
        ({"Last-Event-ID": f"{theirs}-0"}, body, 409),
        ({"Last-Event-ID": "0-0"}, body, 400),
        ({"Last-Event-ID": f"{2**62}-0"}, body, 400),
        ({"Last-Event-ID": "x"}, body, 400),
    ):
        answer = await served.http.post("/v1/runs", json=wrong, headers={"Last-Event-ID": cursor, **headers})
        assert answer.status_code == status, answer.text


async def test_a_queued_run_is_awaited_and_then_heard_live(served: Served, bus: Bus) -> None:
    """The listener may be there before any planner is."""
    run = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    writer = Writer(bus, run=run)
    async with listening(served, run) as events:
        await wait_until(lambda: len(served.parts.streams) == 1, what="the listener is there")
        await writer.open()
        assert (await anext(events)).type == "run_started"
        for text in ("be", "cause"):
            await writer.chunk(text)
            event = await anext(events)
            assert (event.type, event.id) == frames_of(writer)[-1], "each arrives before the next is written"
        await writer.done()
        assert [event.type async for event in events] == ["step", "done"]


async def test_messages_published_to_the_live_subject_are_not_shown(served: Served, bus: Bus, writer: Writer) -> None:
    """Only what is stored is shown."""
    await writer.open()
    async with listening(served, writer.run) as events:
        assert (await anext(events)).type == "run_started"
        await bus.nc.publish(
            f"run.default.{writer.run}.log", b'{"events":[{"type":"done"}]}', headers={EVENTS_HEADER: "done"}
        )
        await writer.chunk("x")
        assert (await anext(events)).type == "chunk"


def request_of(writer: Writer) -> bytes:
    return f"GET /v1/runs/{writer.run}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def test_clients_that_leave_leave_nothing_behind(served: Served, writer: Writer) -> None:
    """200 of them disconnect at once. The run writes nothing, so only the connections show it."""
    await writer.open()
    parts = served.parts
    before = len(parts.bus.nc._subs), len(asyncio.all_tasks()), len(parts.bus.on_reconnect)
    for _ in range(2):
        connections = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(100)]
        for reader, connection in connections:
            connection.write(request_of(writer))
            await reader.readuntil(b"run_started")
        assert len(parts.streams) == 100
        for number, (_, connection) in enumerate(connections):
            if number % 2:
                raw = connection.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.transport.abort()
        await wait_until(lambda: not parts.streams, timeout=5, what="all are disconnected")
    await wait_until(
        lambda: (len(parts.bus.nc._subs), len(parts.bus.on_reconnect)) == (before[0] + 2, before[2]),
        what="only the readers of RUNS and of deletions, which are shared, are left",
    )
    await wait_until(lambda: len(asyncio.all_tasks()) <= before[1] + 2, what="no task is left")


async def test_a_client_that_reads_slowly_gets_everything_and_delays_no_other(served: Served, writer: Writer) -> None:
    """It is sent what it can take; the rest waits in the log, not in the gateway."""
    await writer.open()
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)  # noqa: FBT003
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", served.server.port))
    reader, connection = await asyncio.open_connection(sock=raw, limit=4096)
    connection.write(request_of(writer))
    await reader.readuntil(b"run_started")
    quick = asyncio.create_task(received(served, writer.run))
    for number in range(300):
        await writer.chunk(f"{number} " + "x" * 10_000)
    await writer.done()
    assert await quick == frames_of(writer)
    text = b""
    while b"event: done" not in text:
        piece = await reader.read(65_536)
        assert piece, "the stream ended early"
        text = text[-20:] + piece if b"event: done" not in piece else piece
    await disconnect(connection)
    await wait_until(lambda: not served.parts.streams, what="nothing is left")


async def test_a_stream_outlives_the_nats_server(own_nats_server: NatsServer) -> None:
    """Comments are sent while NATS is unavailable; later records follow once it is back, and none twice."""
    async with (
        provisioned(own_nats_server.url) as bus,
        serving(own_nats_server.url, heartbeat_s=0.2) as served,
    ):
        writer = Writer(bus)
        await writer.open()
        async with served.http.stream("GET", f"/v1/runs/{writer.run}/events") as answer:
            pieces, received = answer.aiter_bytes(), b""

            async def until(sign: bytes) -> None:
                nonlocal received
                start = len(received)
                while sign not in received[start:]:
                    received += await anext(pieces)

            await until(b"run_started")
            own_nats_server.kill()
            await until(b": keep-alive")
            own_nats_server.start()
            await wait_until(lambda: bus.is_connected, what="the writer is connected again")
            await writer.chunk("x")
            await until(b"event: chunk")
            await writer.done()
            await until(b"event: done")
        assert [(event.type, event.id or "") for event in SseDecoder().feed(received)] == frames_of(writer)
