"""Compose the artifact store: its parts, its handlers, and what it does in the background."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from contracts.wire.operation import S3_METADATA
from services.artifact_store.assembler import Assembler
from services.artifact_store.bucket import Bucket
from services.artifact_store.entries import ArtifactKeys, References, entries_bucket
from services.artifact_store.handlers import Broker, build_router, drained
from services.artifact_store.settings import ArtifactStoreSettings
from services.artifact_store.store import ArtifactStore
from services.artifact_store.sweeps import Deletions, GarbageCollector, claim_bucket
from services.artifact_store.uploads import Uploads
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket as KeyValueBucket
from services.runtime.health import Health
from services.runtime.tasks import cancelled
from services.shared.artifacts.errors import StorageUnavailable

logger = structlog.get_logger(__name__)

_CHECK_EVERY_S, _CHECK_TIMEOUT_S = 2.0, 2.0


@asynccontextmanager
async def running(settings: ArtifactStoreSettings, bus: Bus, health: Health) -> AsyncIterator[GarbageCollector]:
    """Compose the store and register its handlers. The settings' S3 server may be unavailable: that fails readiness."""
    bucket, kv = Bucket(settings), entries_bucket(bus)
    references = References(kv)
    artifact_keys, deletions = ArtifactKeys(kv, references), Deletions(references, bucket)
    collector = GarbageCollector(bus, kv, bucket, references, artifact_keys, deletions, settings.artifact_grace_s)
    store = ArtifactStore(bucket, references, artifact_keys, deletions, settings)
    uploads = Uploads(store, settings.artifact_uploads)
    assembler = Assembler(bus, store)
    watch = BucketWatch(bucket, kv, bus.clock.about, is_on_demand=settings.s3_on_demand)
    health.checks["s3"] = lambda: watch.problem
    broker = Broker(bus, build_router(store, uploads, assembler, settings.artifact_uploads))
    await broker.start()
    tasks = [
        bus.tasks.keep("s3_watch", watch.watch),
        bus.tasks.keep("deletions", deletions.finish_forever),
        bus.tasks.keep("artifact_sweep", lambda: collector.sweep_forever(settings.artifact_sweep_s)),
    ]
    try:
        yield collector
    finally:
        await cancelled(*tasks)
        await drained(broker)
        await asyncio.gather(uploads.stop(), assembler.stop())
        await asyncio.gather(*(subscriber.stop() for subscriber in broker.subscribers))
        bucket.close()


class BucketWatch:
    """Creates the bucket, and reports why it cannot be used."""

    def __init__(self, bucket: Bucket, kv: KeyValueBucket, about: dict[str, str], *, is_on_demand: bool) -> None:
        """`about`: the metadata of the service's announcement, in which the problem is kept up to date.

        `is_on_demand`: the first use of the bucket starts its server, and the watch.
        """
        self._bucket = bucket
        self._kv = kv
        self._about = about
        self._is_on_demand = is_on_demand
        self.problem: str | None = None if is_on_demand else "not checked yet"

    async def watch(self) -> None:
        """Check the S3 server every two seconds, without end. Create the bucket where it is missing."""
        claimed = False
        if self._is_on_demand:
            await self._bucket.used.wait()
        while True:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self._bucket.ensure()
                if not claimed:
                    await claim_bucket(self._kv, self._bucket)
                    claimed = True
                self._set_problem(None)
            except TimeoutError:
                self._set_problem("the S3 server answers slowly")
            except StorageUnavailable as error:
                self._set_problem(error.reason)
            except BusError as error:
                self._set_problem(f"NATS: {error}")
            await asyncio.sleep(_CHECK_EVERY_S)

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            logger.info("storage_available" if problem is None else "storage_unavailable", reason=problem)
        self.problem = problem
        self._about[S3_METADATA] = problem or ""
