"""Bodies with images are large: few are held at once, and waiting for one delays no other request."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import pytest

from contracts.artifacts import ImageInput
from contracts.runs.requests import RunInput
from services.gateway.edge import request_body
from services.gateway.edge.request_body import parse
from services.gateway.errors import BodyTooLarge, InvalidInput
from tests.gateway.artifacts.test_images import ask, sent
from tests.support.gateways import Served, assert_unavailable, connection, serving
from tests.support.images import drawn, encoded
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


@contextlib.asynccontextmanager
async def half_a_body(served: Served, size: int) -> AsyncIterator[asyncio.StreamReader]:
    """A client that states a length, sends half of the body, and then nothing."""
    head = f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{served.server.port}\r\nContent-Length: {size}\r\n\r\n"
    async with connection(served, head.encode(), b" " * (size // 2)) as (reader, _):
        yield reader


async def test_few_large_bodies_are_held_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more gets 503; small ones pass; a slot that becomes free is taken."""
    monkeypatch.setattr(request_body, "LARGE_BODY_WAIT_S", 0.3)
    slots = served.parts.bodies._slots
    async with contextlib.AsyncExitStack() as held:
        for _ in range(request_body.MAX_LARGE_BODIES):
            await held.enter_async_context(half_a_body(served, 4 << 20))
        await wait_until(slots.locked, what="all places are taken")
        async with half_a_body(served, 4 << 20) as reader:
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 2" in answer.lower()
        assert (await ask(served.http)).status_code == 202
    await wait_until(lambda: slots._value == request_body.MAX_LARGE_BODIES, what="all places are free again")


async def test_nats_does_not_answer(own_nats_server: NatsServer) -> None:
    """503 soon, before an image is decoded."""
    async with serving(own_nats_server.url, accept_wait_s=0.3) as served:
        own_nats_server.stop()
        began = time.monotonic()
        assert_unavailable(await ask(served.http, sent(encoded(drawn(), "png"))))
        assert time.monotonic() - began < 10


def test_which_bytes_count_as_image_data() -> None:
    """`data` of `images`, at that place and as a text; nothing else may be large."""
    long = "x" * 2000
    taken = json.dumps({"query": "?", "images": [{"data": long}, {"data": long, "detail": "low"}]}).encode()
    assert parse(RunInput, taken, 200).images == [ImageInput(data=long), ImageInput(data=long, detail="low")]
    for body in (
        {"query": long},
        {"query": "?", "images": [long]},
        {"query": "?", "images": [{"data": [long]}]},
        {"query": "?", "images": {"data": long}},
        {"query": "?", "images": [{"data": "x", "filename": long}]},
        {"query": "?", "data": long},
        [{"images": [{"data": long}]}],
    ):
        with pytest.raises(BodyTooLarge):
            parse(RunInput, json.dumps(body).encode(), 200)
    text = long.encode()
    for data in (b'{"images": [{"data": "' + text + b'"}], "images": []}', b'{"query": "?"}' + b" " * 200):
        with pytest.raises(BodyTooLarge):
            parse(RunInput, data, 200)
    infinite = b'{"query": "?", "images": [{"data": "' + text + b'"}], "llm_context": {"n": 1e999}}'
    with pytest.raises(InvalidInput):
        parse(RunInput, infinite, 200)
