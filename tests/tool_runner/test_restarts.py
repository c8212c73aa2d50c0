"""NATS restarts in the middle of calls: shortly afterwards the silence of tools proves nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from runwire import tool
from runwire.serving import serve
from services.messaging.streams import provision
from services.shared.tools.catalogue import Catalogue
from services.tool_runner.app import running
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Planner

executed: list[float] = []


@tool(idempotent=False, side_effects="write")
async def write_once(seconds: float) -> float:
    """Do something that must not happen twice."""
    executed.append(seconds)
    await asyncio.sleep(seconds)
    return seconds


@pytest.fixture
async def planner(own_nats_server: NatsServer) -> AsyncIterator[Planner]:
    """The planner's side, with a tool runner and a tool on a server that may be killed."""
    url = own_nats_server.url
    settings = ToolRunnerSettings(nats_url=url, discover_s=0.3, graceful_timeout_s=0.1)
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connected(url, "tests"))
        await provision(bus)
        catalogue = await Catalogue(bus).start()
        stack.push_async_callback(catalogue.stop)
        serving = asyncio.create_task(serve([write_once], url, stop=stop, grace_s=0.1))
        await stack.enter_async_context(
            running(await stack.enter_async_context(connected(url, "tool_runner", settings)), settings, [])
        )
        executed.clear()
        yield Planner(bus, catalogue)
        stop.set()
        await serving


@pytest.mark.parametrize("seconds", [0.3, 1.5], ids=["replies meanwhile", "replies afterwards"])
async def test_a_restart_of_the_server_loses_no_outcome(
    planner: Planner, own_nats_server: NatsServer, seconds: float
) -> None:
    """Replies that were lost meanwhile are requested again; nothing is executed twice, and no call fails."""
    run = await planner.request("write_once", {"seconds": seconds})
    await wait_until(lambda: executed, what="the tool works")

    own_nats_server.kill()
    await asyncio.sleep(0.5)
    own_nats_server.start()
    finished = await planner.outcome(run, wait_s=20)

    assert finished.observation == seconds
    assert executed == [seconds]
