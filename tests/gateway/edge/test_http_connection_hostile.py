"""Requests that two servers could read differently, floods, and requests in many small pieces."""

import asyncio
import contextlib
import itertools
import json

import pytest

from contracts.wire import subjects
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from tests.gateway.edge.test_http_connection import HEAD, STALL_S, answer_to
from tests.support.gateways import Served, Writer, connection, serving
from tests.support.loop_lag import loop_lag
from tests.support.nats_server import NatsServer

POST = b"POST /v1/runs HTTP/1.1\r\n"
CHUNKED = POST + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = json.dumps({"query": "x"}).encode()
PLAIN = POST + HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


async def everything(served: Served, *sent: bytes) -> bytes:
    """Send bytes, and return all that comes until the gateway closes the connection.

    An answer may be lost when the gateway closes a connection from which it has not read everything.
    """
    received = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(15), connection(served, *sent) as (reader, _):
            while piece := await reader.read(1 << 16):
                received += piece
    return received


async def open_runs(bus: Bus) -> int:
    return int((await bus.api("STREAM.INFO.REQUESTS", {"subjects_filter": subjects.request.all}))["state"]["messages"])


AMBIGUOUS = [
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: 5\r\nContent-Length: 5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: -1\r\n",
    b"X: a\r\n b\r\nContent-Length: 5\r\n",
    b"X: a\nContent-Length: 5\r\n",
    b"X: a\rContent-Length: 5\r\n",
    b"X: \x00\r\nContent-Length: 5\r\n",
    b"X\x80: a\r\nContent-Length: 5\r\n",
    b": a\r\nContent-Length: 5\r\n",
    b"Host: 127.0.0.1\r\nContent-Length: 5\r\n",
]
"""Headers that two servers could read differently."""
NOT_HTTP = [
    b"nonsense\r\n\r\n",
    b"GET /v1/runs HTTP/1.1\r\nbad header\r\n\r\n",
    b"GET /v1/runs HTTP/1.1\r\n" + HEAD + b"X: " + b"x" * (70 << 10),
    b"GET /v1/runs HTTP/1.1\r\n" + HEAD + b"X: " + b"x" * (64 << 10) + b"\r\n\r\n",
    CHUNKED + b"zz\r\n",
    b"POST /v1/runs HTTP/1.0\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /v1/tools HTTP/1.1\r\n\r\n",
    b"GET /v1/tools HTTP/2.0\r\n" + HEAD + b"\r\n",
    b"GET /v1/tools HTTP/0.9\r\n" + HEAD + b"\r\n",
    b"GET /v1/tools\r\n\r\n",
    b"GET /v1/tools HTTP/1.1\n" + HEAD + b"\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /v1/to\xffols HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"GET /v1/tools x HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    CHUNKED + b"1 \r\nx\r\n",
    CHUNKED + b"1\nx\n",
    CHUNKED + b"1\r\nxx\r\n",
    CHUNKED + b"ffffffffffffffffff\r\n",
    CHUNKED + b"-1\r\n",
]
"""Noise, a head without end, TLS, HTTP/2, HTTP/0.9, a proxy's request, and chunks that are none."""


async def test_a_request_that_can_be_read_in_two_ways_is_refused(served: Served, bus: Bus) -> None:
    """Nothing of it is carried out, nor of what follows."""
    before = await open_runs(bus)
    for head in AMBIGUOUS:
        status, problem = await answer_to(served, POST + HEAD + head + b"\r\n0\r\n\r\n" + PLAIN)
        assert (status, problem["code"]) == (400, "bad_request"), head
    assert await open_runs(bus) == before


async def test_a_request_of_another_protocol_is_refused(served: Served) -> None:
    """With a problem, and the connection is closed."""
    for request in NOT_HTTP:
        status, problem = await answer_to(served, request)
        assert (status, problem["code"]) == (400, "bad_request"), request[:100]


async def test_more_framing_than_content_is_refused(served: Served) -> None:
    """Chunk extensions and trailers without end."""
    floods = (b"1;" + b"x" * 200_000, b"0\r\n" + b"X: y\r\n" * 40_000, b"0\r\nX: " + b"y" * 200_000)
    for path, flood in itertools.product((b"/v1/runs", b"/nowhere"), floods):
        text = await everything(served, CHUNKED.replace(b"/v1/runs", path), flood)
        assert text.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ")) or not text
        assert text.count(b"HTTP/1.1") <= 1


async def test_a_flood_of_headers_is_refused_and_delays_no_other(served: Served) -> None:
    """Ten thousand short ones, without an end."""
    async with loop_lag() as lag:
        status, _ = await answer_to(served, b"GET / HTTP/1.1\r\n" + HEAD + b"X: y\r\n" * 20_000)
    assert status == 400
    assert lag.worst_s < STALL_S


async def test_empty_lines_before_a_request_are_bounded(served: Served) -> None:
    """A few are skipped (RFC 9112 2.2)."""
    assert (await everything(served, b"\r\n" * 3, b"GET /livez HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert (await everything(served, b"\r\n" * 50_000)).partition(b"\r\n")[0] in {b"HTTP/1.1 400 Bad Request", b""}


async def test_one_request_is_read_at_a_time(served: Served, bus: Bus) -> None:
    """What comes in one piece with it is not carried out; the connection is closed after the answer."""
    before = await open_runs(bus)
    text = await everything(served, PLAIN * 3_000)
    assert text.startswith(b"HTTP/1.1 202 ")
    assert text.count(b"HTTP/1.1") == 1
    assert await open_runs(bus) == before + 1


@pytest.mark.parametrize("behind", [PLAIN, PLAIN * 1_000])
async def test_a_request_behind_a_stream_waits(served: Served, bus: Bus, writer: Writer, behind: bytes) -> None:
    """It is read at the end of the stream; too many are not read at all."""
    await writer.open()
    before = await open_runs(bus)
    stream = b"GET /v1/runs/" + writer.run.encode() + b"/events HTTP/1.1\r\n" + HEAD + b"\r\n"
    async with connection(served, stream) as (reader, asking):
        await reader.readuntil(b"run_started")
        asking.write(behind)
        await asking.drain()
        await writer.chunk("because")
        await reader.readuntil(b"because")
        assert await open_runs(bus) == before
        await writer.done()
        assert (await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10)).count(b"event: done") == 1
        if behind == PLAIN:
            assert (await asyncio.wait_for(reader.readuntil(b"}"), 10)).startswith(b"HTTP/1.1 202 ")
        else:
            assert await asyncio.wait_for(reader.read(), 10) == b""
            assert await open_runs(bus) == before


async def test_a_client_that_has_a_whole_answer_may_ask_again(served: Served) -> None:
    """One of known length ends for the client before it ends in the gateway: HEAD, 304, a download."""
    async with connection(served) as (reader, writer):
        for _ in range(300):
            writer.write(b"HEAD /v1/tools HTTP/1.1\r\n" + HEAD + b"\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)


async def test_trailers_are_no_headers(shared_nats: NatsServer) -> None:
    """A key in a trailer opens nothing."""
    key, line = new_key("acme")
    async with serving(shared_nats.url, api_keys=line) as served:
        trailer = b"Authorization: Bearer " + key.encode() + b"\r\n"
        body = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
        keyed = POST + HEAD + trailer + b"Transfer-Encoding: chunked\r\n\r\n"
        for head, status in ((CHUNKED, b"401"), (keyed, b"202")):
            async with connection(served, head + body + trailer + b"\r\n") as (reader, _):
                assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("request_", [PLAIN, CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"])
async def test_a_request_may_come_byte_by_byte(served: Served, request_: bytes) -> None:
    """And again on the same connection."""
    async with connection(served) as (reader, writer):
        for _ in range(2):
            for byte in request_:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await asyncio.wait_for(reader.readuntil(b"}"), 10)).startswith(b"HTTP/1.1 202 ")


async def test_http_1_0_gets_no_chunks(served: Served, writer: Writer) -> None:
    """The connection ends with the body, of an event stream too."""
    await writer.open()
    await writer.done()
    plain = await everything(served, b"GET /v1/tools HTTP/1.0\r\n" + HEAD + b"\r\n")
    assert json.loads(plain.partition(b"\r\n\r\n")[2])["tools"] == []
    stream = await everything(served, b"GET /v1/runs/" + writer.run.encode() + b"/events HTTP/1.0\r\n" + HEAD + b"\r\n")
    head, _, text = stream.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert text.startswith(b"retry: 1000\n\nevent: run_started\n")
    assert b"connection: close" in head.lower()


async def test_another_protocol_is_not_spoken(served: Served) -> None:
    """The request is answered as HTTP/1.1 (RFC 9110 7.8), with its body: Java's client begins each connection so."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    text = await everything(served, b"GET /v1/tools HTTP/1.1\r\n" + HEAD + upgrade + preface)
    assert text.startswith(b"HTTP/1.1 200 ")
    assert text.count(b"HTTP/1.1") == 1
    async with connection(served) as (reader, writer):
        for request in (PLAIN.replace(b"\r\n\r\n", b"\r\n" + upgrade), PLAIN):
            writer.write(request)
            assert (await asyncio.wait_for(reader.readuntil(b"}"), 10)).startswith(b"HTTP/1.1 202 ")
