"""A connected bus on an empty server."""

from collections.abc import AsyncIterator

import pytest

from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer


@pytest.fixture
async def bus(own_nats_server: NatsServer) -> AsyncIterator[Bus]:
    """Everything is provisioned; the server is `own_nats_server`."""
    settings = BusSettings(nats_url=own_nats_server.url, ack_wait_s=1.0)
    async with provisioned(own_nats_server.url, "test", settings) as bus:
        yield bus
