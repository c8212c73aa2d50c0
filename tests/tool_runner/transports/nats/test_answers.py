"""Replies to tool_runner on a server with the users of a deployment: tools are in an account of their own."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.wire import subjects
from contracts.wire.rights import LOCAL_TOOLS
from contracts.wire.subject import TOOL_RUNNER
from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from services.tool_runner.calls import events
from services.tool_runner.transports.base import EventQueue
from services.tool_runner.transports.nats.answers import Answers
from tests.support.nats_server import NatsServer

INSTANCE = "an_instance"
TOOL = f"""
import asyncio, sys, nats

async def main():
    client = await nats.connect(sys.argv[1], user=sys.argv[2], password=sys.argv[3])

    async def answer(message):
        await message.respond(b"here")

    for subject in ("$SRV.PING.weather.{INSTANCE}", "tool.weather.status"):
        await client.subscribe(subject, cb=answer)
    await client.flush()
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server with accounts and users."""
    found = NatsServer(tmp_path / "nats", identities=True)
    found.start()
    yield found
    found.kill()


@pytest.mark.parametrize("subject", [subjects.discover_ping("weather", INSTANCE), subjects.tool_status("weather")])
async def test_nats_says_at_once_that_a_killed_tool_is_gone(server: NatsServer, subject: str) -> None:
    """Across the border of the accounts."""
    login = server.login(LOCAL_TOOLS)
    command = [sys.executable, "-c", TOOL, server.url, login["user"], login["password"]]
    bus = await Bus(TOOL_RUNNER, BusSettings(**server.settings(TOOL_RUNNER))).connect()
    answers, queue = Answers(bus), EventQueue(1 << 20)
    tool = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert tool.stdout is not None
    assert await tool.stdout.readline() == b"ready\n"
    with answers.to(queue):
        assert await answers.send("weather", subject, b"", queue, 1)
        assert await queue.next(5) == events.Result(1, b"here", None)
        tool.kill()
        await tool.wait()
        began = time.monotonic()
        reply: events.Event | None = None
        while not isinstance(reply, events.NoResponders):  # The server may not have noticed yet.
            assert await answers.send("weather", subject, b"", queue, 2)
            reply = await queue.next(0.5)
            assert time.monotonic() - began < 5
    await bus.leave()
    assert server.violations() == []
