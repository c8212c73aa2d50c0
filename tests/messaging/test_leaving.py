"""A service closes its connection, whether NATS is available or not."""

import asyncio
import random

from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer

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
