"""Replies of tools on a real connection: whose they are, and what a flood of them costs the others."""

from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from services.messaging.connection import Bus
from services.tool_runner.calls import events
from services.tool_runner.transports.answers import Answers
from services.tool_runner.transports.replies import EventQueue
from tests.support.buses import connected, processed
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """The connection of a tool runner."""
    async with connected(nats_server.url) as bus:
        yield bus


@pytest.fixture
async def tools(nats_server: NatsServer) -> AsyncIterator[Client]:
    """A process with both tools."""
    client = await nats.connect(nats_server.url)
    yield client
    await client.close()


async def test_a_tool_that_floods_is_cut_off_and_the_others_are_not(bus: Bus, tools: Client) -> None:
    """Its calls in progress fail at once, the server delivers nothing more of it, and each time for longer."""
    answers, geo, weather = Answers(bus), EventQueue(1 << 30), EventQueue(1 << 30)
    asked = {subject: await tools.subscribe(subject) for subject in ("tool.geo", "tool.weather")}
    await processed(tools)
    with answers.to(geo), answers.to(weather), capture_logs() as logged:
        for seconds in (1.0, 2.0):

            async def is_sent() -> bool:
                return await answers.send("geo", "tool.geo", b"", geo, 1)

            await wait_until(is_sent, timeout=20, what="it may answer again")
            reply = (await asked["tool.geo"].next_msg(5)).reply
            for _ in range(6_000):
                await tools.publish(reply, b"x", headers={"Runwire-Reply": "heartbeat"})
            assert await answers.send("weather", "tool.weather", b"", weather, 2)
            await (await asked["tool.weather"].next_msg(5)).respond(b"1")
            assert isinstance(await weather.next(10), events.Result)

            found = 0
            while not isinstance(await geo.next(10), events.Flood):
                found += 1
            assert found <= 2_000
            assert not await answers.send("geo", "tool.geo", b"", geo, 3), "not before the pause is over"
            assert [line["cut_off_s"] for line in logged if line["event"] == "tool_flooded"][-1] == seconds
        assert len([line for line in logged if line["event"] == "tool_flooded"]) == 2
