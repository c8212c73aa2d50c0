"""A store over real servers: in this process for most tests, as a process of its own where something dies."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from faststream.nats import NatsBroker
from pydantic import SecretStr

from contracts.artifacts import PutArtifact
from contracts.ids import new_id
from services.artifact_store.__main__ import running
from services.artifact_store.bucket import Bucket
from services.artifact_store.collector import Collector
from services.artifact_store.settings import ArtifactStoreSettings
from services.runtime.artifacts import ArtifactClient
from services.runtime.bus import Bus
from services.runtime.health import Health
from services.runtime.settings import BusSettings
from services.runtime.streams import provision
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import KEYS, S3Server, kinds
from tests.support.waiting import wait_until


@contextlib.asynccontextmanager
async def connected(url: str, name: str = "tests") -> AsyncIterator[Bus]:
    """A service's connection."""
    bus = Bus(name, BusSettings(nats_url=url))
    bus.attach(await nats.connect(**bus.client_options()))
    try:
        yield bus
    finally:
        await bus.nc.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server with all streams, for the tests of one file; they use tenants of their own."""
    found = NatsServer(tmp_path_factory.mktemp("nats"))
    found.start()

    async def prepare() -> None:
        async with connected(found.url) as bus:
            await provision(bus)

    asyncio.run(prepare())
    yield found
    found.kill()


@pytest.fixture(scope="module", params=kinds())
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Every S3 server in turn, for the tests of one file. Who stops it must start it again."""
    with S3Server(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The embedded server, where the kind makes no difference."""
    with S3Server("rclone", tmp_path_factory.mktemp("rclone")) as found:
        yield found


@dataclass
class Store:
    """A running store and what a test looks at it with."""

    client: ArtifactClient
    bus: Bus
    collector: Collector
    s3: S3Server
    settings: ArtifactStoreSettings
    tenant: str = field(default_factory=lambda: f"t{new_id()[-12:]}")

    def put_of(self, body: bytes, **more: Any) -> PutArtifact:
        """What announces these bytes."""
        return PutArtifact(tenant=self.tenant, artifact_id=new_id(), size=len(body), sha256=hashlib.sha256(body).hexdigest(), **more)

    def objects(self, tenant: str | None = None) -> list[str]:
        """The keys of what lies in S3, of this test's tenant or of another."""
        found = self.s3.client.list_objects(self.settings.s3_bucket, prefix=f"{tenant or self.tenant}/", recursive=True)
        return sorted(each.object_name for each in found if each.object_name)


def settings_for(s3: S3Server, url: str, **more: Any) -> ArtifactStoreSettings:
    """The settings of a store on these servers."""
    keys: dict[str, Any] = {"s3_access_key": SecretStr(KEYS.access), "s3_secret_key": SecretStr(KEYS.secret)}
    return ArtifactStoreSettings(nats_url=url, s3_endpoint=f"http://127.0.0.1:{s3.port}", s3_bucket="test-bucket", **keys, **more)


@contextlib.asynccontextmanager
async def serving(s3: S3Server, url: str, *, patience_s: float = 20, **more: Any) -> AsyncIterator[Store]:
    """A store in this process, over real servers."""
    settings = settings_for(s3, url, **more)
    health = Health(Bus("artifact_store", settings))
    broker = NatsBroker(**health.bus.client_options(), graceful_timeout=2, logger=None)
    health.bus.attach(await broker.connect())
    try:
        async with connected(url) as bus, running(settings, health.bus, broker, health) as collector:
            await broker.start()
            health.started = True
            await wait_until(lambda: not health.problems(), what="the store is ready")
            yield Store(ArtifactClient(bus, patience_s=patience_s), bus, collector, s3, settings)
    finally:
        await broker.stop()


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
def bucket(s3: S3Server, server: NatsServer) -> Iterator[Bucket]:
    """The raw bucket module on every S3 server in turn."""
    found = Bucket(settings_for(s3, server.url))
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's processes log."""
    return tmp_path
