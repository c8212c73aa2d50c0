"""A server and a gateway that the tests of a module share; a test that breaks something requests its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from contracts.wire import subjects
from services.messaging.connection import Bus
from tests.support.buses import provisioned
from tests.support.gateways import Served, Writer, serving
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store
from tests.support.stores import serving as storing


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that keeps its streams from test to test: every run has an id of its own. Nobody kills it."""
    with NatsServer(tmp_path_factory.mktemp("gateway-nats")) as server:
        yield server


@pytest.fixture
async def bus(shared_nats: NatsServer) -> AsyncIterator[Bus]:
    async with provisioned(shared_nats.url) as made:
        yield made


@pytest.fixture
async def served(shared_nats: NatsServer) -> AsyncIterator[Served]:
    async with serving(shared_nats.url) as gateway:
        yield gateway


@pytest.fixture
def writer(bus: Bus) -> Writer:
    return Writer(bus)


@pytest.fixture
async def store(bus: Bus, shared_nats: NatsServer, rclone: S3Server) -> AsyncIterator[Store]:
    assert bus.is_connected
    async with storing(rclone, shared_nats.url) as found:
        found.tenant = subjects.DEFAULT_TENANT
        yield found


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running
