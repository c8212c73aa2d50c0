"""A further protocol is a folder, and one name in the tuple that `build_app` takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse

from contracts.runs.requests import RunInput
from contracts.wire.names import new_id
from services.gateway.app import PROTOCOLS, build_app
from services.gateway.edge.routing import RUN_HEADER, RequestCaller, needs, new_router
from services.gateway.parts import GatewayParts
from services.gateway.runs.accept import accept
from services.messaging.connection import Bus
from services.shared.runs.run_follower import RunFollower
from tests.support.gateways import Served, Writer

shouting = new_router("shouting")


def shouted(record: bytes) -> bytes:
    """The encoder: our events as frames of a protocol that shouts their types."""
    return b"".join(event["type"].upper().encode() + b"!\n" for event in orjson.loads(record)["events"])


@shouting.post("/shout", dependencies=[needs("run")])
async def shout(parts: GatewayParts, request: Request, caller: RequestCaller) -> StreamingResponse:
    """The routes: start a run, and shout what happens in it."""
    accepted = await accept(parts, request, caller, RunInput, is_followed=True)
    return StreamingResponse(lines_of(accepted.follower), headers={RUN_HEADER: accepted.run})


async def lines_of(follower: RunFollower) -> AsyncIterator[bytes]:
    async with aclosing(follower.records()) as batches:
        async for records in batches:
            yield b"".join(shouted(each.data) for each in records)


async def test_a_second_protocol_is_mounted_by_one_line(served: Served, bus: Bus) -> None:
    """It starts a run and follows it to its end; the first protocol shows the same run."""
    app = build_app(served.parts, (*PROTOCOLS, shouting))
    asking: dict[str, Any] = {"json": {"query": "why?"}, "headers": {"Idempotency-Key": new_id()}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.post("/shout", json={})).json()["code"] == "invalid_input"
        run = (await client.post("/v1/runs", **asking)).json()["run_id"]
        shouting_back = asyncio.create_task(client.post("/shout", **asking))
        writer = Writer(bus, run=run)
        await writer.open()
        await writer.done()
        answer = await shouting_back
        assert (answer.headers["runwire-run"], answer.text) == (run, "RUN_STARTED!\nSTEP!\nDONE!\n")
        events = (await client.get(f"/v1/runs/{run}/events")).text
        assert [line for line in events.splitlines() if line.startswith("event: ")][-1] == "event: done"
