"""Run the artifact store: `python -m services.artifact_store`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from services.artifact_store.blobs import Shelves
from services.artifact_store.bucket_owner import claim_bucket
from services.artifact_store.garbage_collector import Collector
from services.artifact_store.kv import Table
from services.artifact_store.store import Keeper
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

_LOOK_S, _PROMPT_S = 2.0, 2.0
_AGAIN_S = 5.0


class Watch:
    """Keeps the bucket there, and knows what is wrong with it."""

    def __init__(self, bucket: Bucket, table: Table) -> None:
        self._bucket = bucket
        self._table = table
        self.problem: str | None = "not looked at yet"

    async def watch(self) -> None:
        """Look at the S3 server for ever; make the bucket where it is missing."""
        claimed = False
        while True:
            try:
                async with asyncio.timeout(_PROMPT_S):
                    await self._bucket.ensure()
                if not claimed:
                    await claim_bucket(self._table, self._bucket)
                    claimed = True
                self._found(None)
            except TimeoutError:
                self._found("the S3 server takes its time")
            except StorageUnavailable as error:
                self._found(error.reason)
            await asyncio.sleep(_LOOK_S)

    def _found(self, problem: str | None) -> None:
        if problem != self.problem:
            logger.info("storage_found" if problem is None else "storage_missed", reason=problem)
        self.problem = problem


@asynccontextmanager
async def work(bus: Bus, broker: Broker, health: Health) -> AsyncIterator[None]:
    """Answer requests until told to stop."""
    async with running(ArtifactStoreSettings(), bus, broker, health):
        yield


@asynccontextmanager
async def running(settings: ArtifactStoreSettings, bus: Bus, broker: Broker, health: Health) -> AsyncIterator[Collector]:
    """Compose the store and give it to the broker. An S3 server that is away makes it unready, not dead."""
    bucket, table = Bucket(settings), Table(bus)
    shelves = Shelves(table)
    references = References(table, shelves)
    collector = Collector(bus, table, bucket, shelves, references, settings.artifact_grace_s)
    keeper = Keeper(bucket, shelves, references, settings, collector.hint)
    uploads = Uploads(keeper, settings.artifact_uploads)
    assembler = Assembler(bus, keeper)
    watch = Watch(bucket, table)
    health.checks["s3"] = lambda: watch.problem
    router = build_router(keeper, uploads, assembler, settings.artifact_uploads)
    broker.include_router(router)
    duties = {
        "s3_watch": watch.watch,
        "deletions": collector.follow_hints,
        "artifact_sweep": lambda: collector.sweep_for_ever(settings.artifact_sweep_s),
    }
    tasks = [bus.tasks.keep(name, kept_up(duty)) for name, duty in duties.items()]
    try:
        yield collector
    finally:
        await cancelled(*tasks)
        await drained(broker)
        await asyncio.gather(uploads.stop(), assembler.stop())
        await asyncio.gather(*(subscriber.stop() for subscriber in broker.subscribers))
        bucket.close()


async def kept_up(duty: Callable[[], Awaitable[None]], again_s: float = _AGAIN_S) -> None:
    """Do what has no end, and begin again when it has ended: nobody would miss it for days."""
    while True:
        try:
            await duty()
        except Exception as error:  # noqa: BLE001, see above
            logger.error("duty_failed", error=type(error).__name__, places=places(error))  # noqa: TRY400, a traceback may show bytes
        await asyncio.sleep(again_s)


if __name__ == "__main__":
    run_on_nats("artifact_store", read_settings(ArtifactStoreSettings), work)
