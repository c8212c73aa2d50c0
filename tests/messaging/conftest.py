"""A connected bus on an empty server."""

from collections.abc import AsyncIterator

import pytest

from services.messaging.connection import Bus
from services.messaging.streams.provision import provision
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer


@pytest.fixture
async def bus(own_nats_server: NatsServer) -> AsyncIterator[Bus]:
    """Everything is provisioned; the server is `own_nats_server`."""
    bus = Bus("test", BusSettings(nats_url=own_nats_server.url, ack_wait_s=1.0))
    await bus.connect()
    await provision(bus)
    yield bus
    await bus.leave()
