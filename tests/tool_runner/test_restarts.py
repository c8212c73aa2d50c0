"""NATS restarts in the middle of calls: shortly afterwards the silence of tools proves nothing."""

import asyncio

import pytest

from runwire import tool
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Planner, Serve, Start

executed: list[float] = []


@tool(idempotent=False, side_effects="write")
async def write_once(seconds: float) -> float:
    """Do something that must not happen twice."""
    executed.append(seconds)
    await asyncio.sleep(seconds)
    return seconds


@pytest.fixture
async def server(own_nats_server: NatsServer) -> NatsServer:
    """One that may be killed."""
    async with provisioned(own_nats_server.url):
        return own_nats_server


@pytest.mark.parametrize("seconds", [0.3, 1.5], ids=["replies meanwhile", "replies afterwards"])
async def test_a_restart_of_the_server_loses_no_outcome(
    planner: Planner, start_runner: Start, serve_tools: Serve, server: NatsServer, seconds: float
) -> None:
    """Replies that were lost meanwhile are requested again; nothing is executed twice, and no call fails."""
    executed.clear()
    serve_tools(write_once)
    await start_runner(settling_s=2.0)
    run = await planner.request("write_once", {"seconds": seconds})
    await wait_until(lambda: executed, what="the tool works")

    server.kill()
    await asyncio.sleep(0.5)
    server.start()
    finished = await planner.outcome(run, wait_s=20)

    assert finished.observation == seconds
    assert executed == [seconds]
