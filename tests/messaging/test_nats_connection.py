"""What a caller gets when NATS refuses, does not answer, or cannot be reached; and the end of a connection."""

import asyncio
import random
import re
import time
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.errors import NoResponders, Unavailable, Unsure
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


async def test_a_request_without_a_listener_has_no_responders(bus: Bus) -> None:
    """At once, and a stream is no different: whether the write was stored is then unknown."""
    with pytest.raises(NoResponders):
        await bus.request("nobody.listens")
    with pytest.raises(Unsure):
        await bus.publish("nobody.listens", b"")


async def test_without_a_server_there_is_no_answer(bus: Bus, own_nats_server: NatsServer) -> None:
    """A read is unavailable, a write is unsure, and a message without an acknowledgement is not sent."""
    own_nats_server.kill()
    with pytest.raises(Unavailable):
        await bus.request("some.subject", wait_s=0.5)
    with pytest.raises(Unavailable):
        await bus.api("INFO", {}, 0.5)
    with pytest.raises(Unavailable):
        await (await bus.reader("RUNS")).page("emit.default.x.log", 1)
    with pytest.raises(Unsure):
        await bus.publish(subjects.log("default", new_id()), b"x", wait_s=0.5)
    assert not await bus.send("some.subject")


async def test_what_is_in_flight_ends_with_the_connection(bus: Bus, own_nats_server: NatsServer) -> None:
    """Its reply went with the server: nobody waits out ten minutes for it."""

    async def say_nothing(_: Msg) -> None:
        pass

    silent = await bus.subscribe("silent.subject", say_nothing)
    reader = await bus.reader("RUNS")
    asking = asyncio.create_task(bus.request("silent.subject", wait_s=600))
    own_nats_server.freeze()
    paging = asyncio.create_task(reader.page("emit.default.x.log", 1))
    await asyncio.sleep(0)
    own_nats_server.kill()
    for waiting in (asking, paging):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, 20)
    await silent.stop()


def test_only_this_package_knows_the_errors_of_nats_py() -> None:
    """Other services see `messaging.errors`."""
    services = Path(__file__).parents[2] / "services"
    found = [path for path in services.rglob("*.py") if re.search(r"nats\.errors", path.read_text(encoding="utf-8"))]
    assert {path.relative_to(services).parts[0] for path in found} == {"messaging"}


async def test_a_thousand_waiters_sleep_until_the_reconnect(bus: Bus, own_nats_server: NatsServer) -> None:
    """None of them wakes up while NATS is unavailable, and all do as soon as it is back."""
    tries: list[float] = []

    async def ask() -> None:
        tries.append(time.monotonic())
        await bus.request("$JS.API.INFO", wait_s=5)

    own_nats_server.kill()
    await wait_until(lambda: not bus.is_connected, what="the connection is lost")
    waiting = [asyncio.create_task(bus.until_answered(ask)) for _ in range(1000)]
    await wait_until(lambda: len(tries) == 1000, what="each has tried once")
    await asyncio.sleep(1.5)
    assert len(tries) == 1000
    own_nats_server.start()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert all(at >= bus.up_since for at in tries[1000:2000])
    assert tries[1999] - bus.up_since < 0.5


_MANY = 100
"""nats-py goes on reconnecting after about one close in a hundred, unless it is ended."""


async def test_nothing_goes_on_reconnecting(own_nats_server: NatsServer) -> None:
    """NATS is unavailable, and each connection is closed at another moment of its reconnect."""
    before = asyncio.all_tasks()
    buses = []
    for _ in range(_MANY):
        bus = Bus("test", BusSettings(nats_url=own_nats_server.url))
        buses.append(await bus.connect())
    own_nats_server.stop()

    async def leave(bus: Bus) -> None:
        await asyncio.sleep(2 * random.random())
        await bus.leave()

    await asyncio.gather(*map(leave, buses))
    await asyncio.sleep(2.5)  # what goes on tries again within this time
    assert asyncio.all_tasks() == before
    assert not any(bus.is_connected for bus in buses)
