"""An artifact store in the test's own process, over real servers."""

import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from contracts.artifacts import PutArtifact
from contracts.wire.names import new_id
from services.artifact_store.app import running
from services.artifact_store.settings import ArtifactStoreSettings
from services.artifact_store.sweeps import GarbageCollector
from services.messaging.connection import Bus
from services.messaging.nats_link import NatsLink
from services.runtime.health import Health
from services.shared.artifacts.client import ArtifactClient
from tests.support.buses import connected
from tests.support.s3_servers import KEYS, S3Server
from tests.support.waiting import wait_until


@dataclass
class Store:
    """A running store and what a test looks at it with."""

    client: ArtifactClient
    bus: Bus
    collector: GarbageCollector
    s3: S3Server
    settings: ArtifactStoreSettings
    tenant: str = field(default_factory=lambda: f"t{new_id()[-12:]}")

    def put_of(self, body: bytes, **more: Any) -> PutArtifact:
        """What announces these bytes."""
        return PutArtifact(
            tenant=self.tenant, artifact_id=new_id(), size=len(body), sha256=hashlib.sha256(body).hexdigest(), **more
        )

    def objects(self, tenant: str | None = None) -> list[str]:
        """The keys of what lies in S3, of this test's tenant or of another."""
        found = self.s3.client.list_objects(self.settings.s3_bucket, prefix=f"{tenant or self.tenant}/", recursive=True)
        return sorted(each.object_name for each in found if each.object_name)


def settings_for(s3: S3Server, nats_url: str, **more: Any) -> ArtifactStoreSettings:
    """The settings of a store on these servers."""
    keys: dict[str, Any] = {"s3_access_key": SecretStr(KEYS["access"]), "s3_secret_key": SecretStr(KEYS["secret"])}
    return ArtifactStoreSettings(
        nats_url=nats_url,
        graceful_timeout_s=2,
        s3_endpoint=f"http://127.0.0.1:{s3.port}",
        s3_bucket="test-bucket",
        **keys,
        **more,
    )


@contextlib.asynccontextmanager
async def serving(s3: S3Server, url: str, *, patience_s: float = 20, **more: Any) -> AsyncIterator[Store]:
    """A store in this process, over real servers."""
    settings = settings_for(s3, url, **more)
    link = NatsLink(Bus("artifact_store", settings))
    health = Health(link.name, link.problems)
    await link.connect()
    try:
        async with connected(url) as bus, running(settings, link.bus, health) as collector:
            health.started = True
            await wait_until(lambda: not health.problems(), what="the store is ready")
            yield Store(ArtifactClient(bus, patience_s=patience_s), bus, collector, s3, settings)
    finally:
        await link.leave()
