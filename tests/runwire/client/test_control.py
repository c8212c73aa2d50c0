"""Decisions, inputs and sessions as the client sends them, to a server that answers as the test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from runwire import Client
from runwire.client import OpenPause
from runwire.errors import NotFound

RUN = "0" * 32
PAUSE = OpenPause(
    pause_id="a" * 32, run_id=RUN, reason="approval", source="policy", tool="pay", token="t.1.d", expires_at=1
)


@dataclass
class Scripted:
    """A server: the requests that it received, and the answers that it still has."""

    url: str = ""
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((line.removesuffix(" HTTP/1.1"), headers, json.loads(body or b"null")))
        status, answer = self.answers.pop(0)
        sent = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(sent)}\r\nConnection: close\r\n\r\n".encode() + sent)
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    """A server without answers yet."""
    scripted = Scripted()
    async with await asyncio.start_server(scripted, "127.0.0.1", 0) as listening:
        scripted.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield scripted


@pytest.fixture
async def client(server: Scripted) -> AsyncIterator[Client]:
    async with Client(server.url, patience_s=10) as made:
        yield made


async def test_a_decision_says_what_was_seen(server: Scripted, client: Client) -> None:
    """The pause's token goes with it, and what the decision needs."""
    server.answers = [(200, {})] * 4
    await client.approve(PAUSE, note="fine")
    await client.reject(PAUSE, note="too much")
    await client.edit(PAUSE, {"amount": 5})
    await client.answer(PAUSE, "blue", images_remove=["b" * 32])
    seen = {"pause_id": PAUSE.pause_id, "token": PAUSE.token}
    assert [body for _, _, body in server.requests] == [
        {**seen, "decision": "approve", "note": "fine"},
        {**seen, "decision": "reject", "note": "too much"},
        {**seen, "decision": "edit", "args": {"amount": 5}, "note": ""},
        {**seen, "decision": "answer", "input": "blue", "images_remove": ["b" * 32], "note": ""},
    ]
    assert {line for line, _, _ in server.requests} == {f"POST /v1/runs/{RUN}/resume"}
    assert len({headers["idempotency-key"] for _, headers, _ in server.requests}) == 4


async def test_a_repeated_request_has_the_same_key(server: Scripted, client: Client) -> None:
    """So a decision or an input that was stored before its answer was lost counts once."""
    unavailable = (503, {"code": "unavailable", "detail": "later"})
    server.answers = [unavailable, (200, {}), (202, {}), (200, {}), (200, {})]
    await client.approve(PAUSE)
    await client.send_input(RUN, "in euros")
    await client.send_input(RUN, "no", redirect=True, idempotency_key="mine")
    keys = [headers["idempotency-key"] for _, headers, _ in server.requests]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert keys[4] == "mine"
    assert server.requests[-1][2] == {"text": "no", "redirect": True}


async def test_an_empty_session_id_is_not_found(client: Client) -> None:
    """It would be the address of the list."""
    for attempt in (client.session(""), client.delete_session(""), client.set_context("", {})):
        with pytest.raises(NotFound):
            await attempt
