"""A store over real servers: in this process for most tests, as a process of its own where something dies."""

from collections.abc import AsyncIterator, Iterator

import pytest

from services.artifact_store.bucket import Bucket
from tests.artifact_store.inside import Inside
from tests.support.buses import provisioned_server
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server, kinds
from tests.support.stores import Store, serving, settings_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server with all streams, for the tests of one file; they use tenants of their own."""
    with provisioned_server(tmp_path_factory.mktemp("nats")) as found:
        yield found


@pytest.fixture(scope="module", params=kinds())
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Every S3 server in turn, for the tests of one file. Who stops it must start it again."""
    with S3Server(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
async def store(s3: S3Server, server: NatsServer) -> AsyncIterator[Store]:
    """A store on every S3 server in turn."""
    async with serving(s3, server.url) as found:
        yield found


@pytest.fixture
async def embedded(rclone: S3Server, server: NatsServer) -> AsyncIterator[Store]:
    """A store on the embedded S3 server."""
    async with serving(rclone, server.url) as found:
        yield found


@pytest.fixture
def inside(embedded: Store) -> Inside:
    """The parts of another instance of it, whose collector has no grace."""
    return Inside(embedded.bus, embedded.settings)


@pytest.fixture
def bucket(s3: S3Server, server: NatsServer) -> Iterator[Bucket]:
    """The raw bucket module on every S3 server in turn."""
    found = Bucket(settings_for(s3, server.url))
    yield found
    found.close()
