"""A service's connection, for tests that stand in for one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from nats.aio.client import Client

from services.messaging.connection import Bus
from services.messaging.streams import missing, provision
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer


@contextlib.asynccontextmanager
async def connected(url: str, name: str = "tests", settings: BusSettings | None = None) -> AsyncIterator[Bus]:
    """Connect as a service does."""
    bus = Bus(name, settings or BusSettings(nats_url=url))
    await bus.connect()
    try:
        yield bus
    finally:
        await bus.leave()


@contextlib.asynccontextmanager
async def provisioned(url: str, name: str = "tests", settings: BusSettings | None = None) -> AsyncIterator[Bus]:
    """Connect to a server that then has all streams and buckets."""
    async with connected(url, name, settings) as bus:
        if await missing(bus):  # To ask takes a tenth of the time.
            await provision(bus)
        yield bus


@contextlib.contextmanager
def provisioned_server(folder: Path) -> Iterator[NatsServer]:
    """A server with all streams."""

    async def prepare() -> None:
        async with provisioned(server.url):
            pass

    with NatsServer(folder) as server:
        asyncio.run(prepare())
        yield server


async def processed(client: Client) -> None:
    """Return once the server has processed what this client has sent, subscriptions included.

    The first ping of nats-py overtakes what has not been written yet.
    """
    await client.flush()
    await client.flush()
