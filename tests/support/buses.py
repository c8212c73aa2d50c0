"""A service's connection, for tests that stand in for one."""

import contextlib
from collections.abc import AsyncIterator

from nats.aio.client import Client

from services.messaging.connection import Bus
from services.runtime.settings import BusSettings


@contextlib.asynccontextmanager
async def connected(url: str, name: str = "tests", settings: BusSettings | None = None) -> AsyncIterator[Bus]:
    """Connect as a service does."""
    bus = Bus(name, settings or BusSettings(nats_url=url))
    await bus.connect()
    try:
        yield bus
    finally:
        await bus.leave()


async def processed(client: Client) -> None:
    """Return once the server has processed what this client has sent, subscriptions included.

    The first ping of nats-py overtakes what has not been written yet.
    """
    await client.flush()
    await client.flush()
