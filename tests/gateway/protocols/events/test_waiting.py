"""A client whose run waits for a planner is told so, once."""

import asyncio
import signal
import time
from collections.abc import MutableMapping
from typing import Any

import pytest

from runwire.client import Client
from services.gateway.auth.caller import KEYLESS
from services.gateway.protocols.events import stream
from services.messaging.connection import Bus
from services.runtime.tasks import cancelled
from services.shared.runs.run_follower import RunFollower
from tests.support.gateways import Served, Writer, planner_process, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

LISTENING = {"Accept": "text/event-stream"}


async def test_a_waiting_client_is_told_so_once(served: Served, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it asks or comes later; one whose run has begun is told nothing."""
    monkeypatch.setattr(stream, "_WAITING_AFTER_S", 0.1)
    async with served.http.stream("POST", "/v1/runs", headers=LISTENING, json={"query": "x"}) as answer:
        run, lines = answer.headers["runwire-run"], answer.aiter_lines()
        assert [await anext(lines) for _ in range(3)] == ["retry: 1000", "", ": waiting"]
        async with served.http.stream("GET", f"/v1/runs/{run}/events") as late:
            later = late.aiter_lines()
            assert [await anext(later) for _ in range(3)] == ["retry: 1000", "", ": waiting"]
            writer = Writer(bus, run=run)
            await writer.open()
            await writer.done()
            for each in (lines, later):
                assert not [line async for line in each if line.startswith(": waiting")]


async def test_a_client_whose_run_has_begun_hears_no_more_than_others(
    shared_nats: NatsServer, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first silence after the beginning is as long as every other one before it is filled."""
    monkeypatch.setattr(stream, "_WAITING_AFTER_S", 0.3)
    await writer.open()
    sent: dict[bytes, float] = {}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent[message.get("body", b"")[:6]] = time.monotonic()

    async def receive() -> MutableMapping[str, Any]:
        return await asyncio.Future[MutableMapping[str, Any]]()

    async with serving(shared_nats.url, heartbeat_s=1.0) as served:
        follower = RunFollower(served.parts.bus, "default", writer.run)
        response = stream.stream_of_run(served.parts, KEYLESS, writer.run, follower, "refs", may_wait=True)
        streaming = asyncio.create_task(response({}, receive, send))
        await wait_until(lambda: b": keep" in sent, what="the silence is filled")
        await cancelled(streaming)
    assert b": wait" not in sent
    assert sent[b": keep"] - sent[b"event:"] > 0.6


@pytest.mark.chaos
async def test_clients_of_a_planner_that_stands_still_wait(
    served: Served, shared_nats: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They are told so, and nothing more once it goes on."""
    with planner_process(shared_nats.url, tmp_path_factory.mktemp("planner")) as planner:
        async with Client(served.url) as client:
            await client.result(await client.start("What can you do?"))
            planner.send_signal(signal.SIGSTOP)
            comments: list[str] = []
            events = aiter(client.follow(await client.start("What can you do?"), on_comment=comments.append))

            async def goes_on() -> None:
                await wait_until(lambda: comments, what="the client knows that it waits")
                planner.send_signal(signal.SIGCONT)

            waking = asyncio.create_task(goes_on())
            assert [event.type async for event in events][-1] == "done"
            await waking
            assert comments == ["waiting"]
