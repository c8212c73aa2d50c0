"""Run the artifact store: `python -m services.artifact_store`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from services.artifact_store.blobs import Blobs
from services.artifact_store.bucket_owner import claim_bucket
from services.artifact_store.garbage_collector import GarbageCollector
from services.artifact_store.kv import KeyValueStore
from services.artifact_store.store import ArtifactStore
from services.artifact_store.streams import Assembler
from services.messaging.connection import Bus
from services.messaging.nats_link import Broker, run_on_nats
from services.runtime.health import Health
from services.runtime.settings import read_settings
from services.runtime.tasks import cancelled, places
from services.shared.artifacts.errors import StorageUnavailable

from .bucket import Bucket
from .handlers import build_router, drained
from .references import References
from .settings import ArtifactStoreSettings
from .uploads import Uploads

logger = structlog.get_logger(__name__)

_CHECK_S, _CHECK_TIMEOUT_S = 2.0, 2.0
_RESTART_S = 5.0


class BucketWatch:
    """Creates the bucket, and reports why it cannot be used."""

    def __init__(self, bucket: Bucket, kv: KeyValueStore) -> None:
        self._bucket = bucket
        self._kv = kv
        self.problem: str | None = "not checked yet"

    async def watch(self) -> None:
        """Check the S3 server every two seconds, without end. Create the bucket where it is missing."""
        claimed = False
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
            await asyncio.sleep(_CHECK_S)

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            logger.info("storage_available" if problem is None else "storage_unavailable", reason=problem)
        self.problem = problem


@asynccontextmanager
async def work(bus: Bus, broker: Broker, health: Health) -> AsyncIterator[None]:
    """Answer requests until the service stops."""
    async with running(ArtifactStoreSettings(), bus, broker, health):
        yield


@asynccontextmanager
async def running(
    settings: ArtifactStoreSettings, bus: Bus, broker: Broker, health: Health
) -> AsyncIterator[GarbageCollector]:
    """Compose the store and register its handlers.

    An unavailable S3 server makes the service unready; it does not end it.
    """
    bucket, kv = Bucket(settings), KeyValueStore(bus)
    blobs = Blobs(kv)
    references = References(kv, blobs)
    collector = GarbageCollector(bus, kv, bucket, blobs, references, settings.artifact_grace_s)
    store = ArtifactStore(bucket, blobs, references, settings, collector.hint)
    uploads = Uploads(store, settings.artifact_uploads)
    assembler = Assembler(bus, store)
    watch = BucketWatch(bucket, kv)
    health.checks["s3"] = lambda: watch.problem
    router = build_router(store, uploads, assembler, settings.artifact_uploads)
    broker.include_router(router)
    duties = {
        "s3_watch": watch.watch,
        "deletions": collector.follow_hints,
        "artifact_sweep": lambda: collector.sweep_forever(settings.artifact_sweep_s),
    }
    tasks = [bus.tasks.keep(name, keep_running(duty)) for name, duty in duties.items()]
    try:
        yield collector
    finally:
        await cancelled(*tasks)
        await drained(broker)
        await asyncio.gather(uploads.stop(), assembler.stop())
        await asyncio.gather(*(subscriber.stop() for subscriber in broker.subscribers))
        bucket.close()


async def keep_running(duty: Callable[[], Awaitable[None]], restart_s: float = _RESTART_S) -> None:
    """Run a duty that should never end, and restart it when it ends."""
    while True:
        try:
            await duty()
        except Exception as error:  # noqa: BLE001, every failure restarts the duty
            logger.error("duty_failed", error=type(error).__name__, places=places(error))  # noqa: TRY400, a traceback may show bytes
        await asyncio.sleep(restart_s)


if __name__ == "__main__":
    run_on_nats("artifact_store", read_settings(ArtifactStoreSettings), work)
