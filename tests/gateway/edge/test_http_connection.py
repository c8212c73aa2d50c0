"""Clients that misuse a connection: half a request, two lengths, no HTTP, reading nothing.

Real sockets, a real gateway.
"""

import asyncio
import contextlib
import gc
import json
import socket
import struct
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from services.gateway.auth.key_lines import new_key
from services.gateway.edge import http_connection
from services.gateway.edge.http_connection import HttpConnection
from services.gateway.errors import MEDIA_TYPE
from services.messaging.connection import Bus
from tests.support.gateways import (
    Served,
    Writer,
    assert_unavailable,
    bearer,
    connection,
    disconnect,
    frames_of,
    serving,
)
from tests.support.loop_lag import loop_lag
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

HEAD = b"Host: 127.0.0.1\r\n"
STALL_S = 1.0


async def answer_to(served: Served, *sent: bytes) -> tuple[int, dict[str, str]]:
    """Send bytes, wait until the gateway closes the connection, and return status and problem; 0 without an answer."""
    async with connection(served, *sent) as (reader, _):
        head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    if not head:
        return 0, {}
    assert f"content-type: {MEDIA_TYPE}".encode() in head.lower()
    return int(head.split()[1]), json.loads(body)


@contextlib.asynccontextmanager
async def deaf_listeners(served: Served, run: str, count: int) -> AsyncIterator[list[socket.socket]]:
    """Clients that ask for a run's events and never read."""
    loop, found = asyncio.get_running_loop(), []
    request = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    try:
        for _ in range(count):
            raw = socket.socket()
            found.append(raw)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)  # noqa: FBT003
            await loop.sock_connect(raw, ("127.0.0.1", served.server.port))
            await loop.sock_sendall(raw, request)
        yield found
    finally:
        for raw in found:
            raw.close()


@pytest.mark.parametrize("path", [b"/v1/runs", b"/nowhere"])
async def test_a_body_in_tiny_chunks_delays_no_other(served: Served, path: bytes) -> None:
    """A megabyte of chunks of one byte is refused after the first thousand of them, with a key or without one."""
    head = b"POST " + path + b" HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    async with loop_lag() as lag, connection(served) as (reader, writer):
        writer.write(head + b"1\r\n \r\n" * 170_000)
        assert b"HTTP/1.1 4" in await asyncio.wait_for(reader.read(64), 10)
    assert lag.worst_s < STALL_S


async def test_a_body_in_small_chunks_is_taken(served: Served) -> None:
    """Some programs write JSON piece by piece."""
    body = json.dumps({"query": "x" * 2000}).encode()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(body[at : at + 4]), body[at : at + 4]) for at in range(0, len(body), 4))
    head = b"POST /v1/runs HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    async with connection(served, head + pieces + b"0\r\n\r\n") as (reader, _):
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 202 ")


async def test_half_a_request_is_not_awaited_for_ever(shared_nats: NatsServer) -> None:
    """The first of a connection, a later one, and none at all; a slow one within the time is answered."""
    async with serving(shared_nats.url, request_head_s=0.3) as served:
        half = b"GET /v1/tools HTTP/1.1\r\nHo"
        status, problem = await answer_to(served, half)
        assert (status, problem["code"]) == (408, "request_too_slow")
        assert await answer_to(served) == (0, {})
        async with connection(served, half, b"st: 127.0.0.1\r\n\r\n") as (reader, writer):
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
            writer.write(half)
            assert b"request_too_slow" in await asyncio.wait_for(reader.read(), 10)


async def test_silent_connections_make_room_for_new_ones(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was silent for longest goes first. Those that are answered stay."""
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 4)
    async with contextlib.AsyncExitStack() as open_ones:
        opened = [await open_ones.enter_async_context(connection(served)) for _ in range(6)]
        assert [await asyncio.wait_for(opened[number][0].read(), 10) for number in (0, 1)] == [b"", b""]
        for reader, writer in opened[2:]:
            writer.write(b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n")
            assert (await asyncio.wait_for(reader.readuntil(b"}"), 10)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_connection_that_has_ended_leaves_nothing(served: Served, *, is_reset: bool) -> None:
    """Without the garbage collector, which runs once in hundreds of connections, and before any timer fires."""

    def connections() -> int:
        return sum(isinstance(each, HttpConnection) for each in gc.get_objects())

    gc.collect()
    before, linger = connections(), struct.pack("ii", int(is_reset), 0)
    gc.disable()
    try:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
            writer.write(b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n")
            await reader.readuntil(b"}")
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            assert connections() > before
            writer.close()
        await wait_until(lambda: connections() <= before, timeout=5, what="the connections are gone")
    finally:
        gc.enable()


async def test_one_byte_at_a_time_does_not_prolong_it(shared_nats: NatsServer) -> None:
    """The time counts from the first byte."""
    async with serving(shared_nats.url, request_head_s=0.5) as served, connection(served) as (reader, writer):
        reading = asyncio.create_task(reader.read())
        for byte in b"GET /v1/tools?" + b"x" * 200:
            if reading.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        assert b"request_too_slow" in await reading


async def test_an_answer_that_takes_long_is_not_cut_short(shared_nats: NatsServer, writer: Writer) -> None:
    """The limit is for what a client sends, not for what it waits for; a client that reads is not cut off either."""
    await writer.open()
    async with serving(shared_nats.url, request_head_s=0.2, stalled_client_s=0.2, heartbeat_s=0.05) as served:
        async with served.http.stream("GET", f"/v1/runs/{writer.run}/events") as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if text.count(": keep-alive") == 12:
                    await writer.done()
        assert "event: done" in text


async def test_a_client_that_does_not_read_is_cut_off_and_may_resume(shared_nats: NatsServer, writer: Writer) -> None:
    """Nothing of it stays behind; coming back with the last id that it got gives the rest."""
    await writer.open()
    for number in range(40):
        await writer.chunk(f"{number} " + "x" * 200_000)
    async with serving(shared_nats.url, stalled_client_s=0.5) as served:
        async with deaf_listeners(served, writer.run, 1) as (raw,):
            await wait_until(lambda: len(served.parts.streams) == 1, what="it is there")
            await wait_until(lambda: not served.parts.streams, timeout=10, what="it was cut off")
            await wait_until(lambda: not _open(served), what="its connection is closed")
            reader, resumed = await asyncio.open_connection(sock=raw, limit=1 << 24)
            received = b""
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(1 << 20):
                    received += piece
            await disconnect(resumed)
        assert b"event: chunk" in received
        cursor = received.rpartition(b"\nid: ")[2].split(b"\n")[0].decode()
        await writer.done()
        rest = await served.http.get(f"/v1/runs/{writer.run}/events", headers={"Last-Event-ID": cursor})
    log, stream = map(int, cursor.split("-"))
    kinds = [kind for kind, _ in frames_of(writer, (log, stream))]
    assert [line[7:] for line in rest.text.splitlines() if line.startswith("event: ")] == kinds
    assert 1 < len(kinds) < 42


def _open(served: Served) -> list[HttpConnection]:
    return [
        each
        for each in served.server.server_state.connections
        if isinstance(each, HttpConnection) and each.cycle is not None
    ]


async def test_hundreds_of_clients_that_never_read_delay_no_other(shared_nats: NatsServer, writer: Writer) -> None:
    """500 of them, each sent 600 kB: another client is answered all the while, and nothing of them stays behind."""
    await writer.open()
    for number in range(60):
        await writer.chunk(f"{number} " + "x" * 10_000)
    async with serving(shared_nats.url, max_streams_per_tenant=500) as served:
        took: list[float] = []

        async def probe() -> None:
            async with httpx.AsyncClient(base_url=served.url, timeout=20) as http:
                while True:
                    began = time.monotonic()
                    assert (await http.get(f"/v1/runs/{writer.run}")).status_code == 200
                    took.append(time.monotonic() - began)
                    await asyncio.sleep(0.01)

        prober = asyncio.create_task(probe())
        async with deaf_listeners(served, writer.run, 500):
            await wait_until(lambda: len(served.parts.streams) == 500, timeout=20, what="all are there")
            there = len(took)
            await wait_until(lambda: len(took) > there + 50, timeout=20, what="another client is answered")
            prober.cancel()
        assert max(took) < 2
        await wait_until(lambda: not served.parts.streams, what="nothing is left")


async def test_streams_are_limited_for_a_tenant_and_in_all(shared_nats: NatsServer, bus: Bus) -> None:
    """429 for the tenant that has too many, 503 when the gateway has; a place is free again once a client has left."""
    keys = {tenant: new_key(tenant) for tenant in ("greedy", "modest")}
    writers = {tenant: Writer(bus, tenant=tenant) for tenant in keys}
    for writer in writers.values():
        await writer.open()
    lines = ",".join(line for _, line in keys.values())
    async with serving(shared_nats.url, api_keys=lines, max_streams=3, max_streams_per_tenant=2) as served:

        async def listen(tenant: str, stack: contextlib.AsyncExitStack) -> httpx.Response:
            path = f"/v1/runs/{writers[tenant].run}/events"
            answer = await stack.enter_async_context(served.http.stream("GET", path, headers=bearer(keys[tenant][0])))
            if answer.status_code != 200:
                await answer.aread()
            return answer

        async with contextlib.AsyncExitStack() as stack:
            assert [(await listen("greedy", stack)).status_code for _ in range(2)] == [200, 200]
            refused = await listen("greedy", stack)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert int(refused.headers["retry-after"]) > 0
            for path in ("/chat", "/v1/runs"):
                headers = {**bearer(keys["greedy"][0]), "Accept": "text/event-stream"}
                asked = await served.http.post(path, json={"query": "x"}, headers=headers)
                assert (asked.status_code, asked.json()["code"]) == (429, "too_many_streams")
                assert "run_id" not in asked.json()
            assert (await listen("modest", stack)).status_code == 200
            assert_unavailable(await listen("modest", stack))
        await wait_until(lambda: not served.parts.streams, what="all have left")
        async with contextlib.AsyncExitStack() as stack:
            assert (await listen("greedy", stack)).status_code == 200
