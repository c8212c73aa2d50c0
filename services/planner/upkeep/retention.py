"""Purges the runs past their retention."""

from collections.abc import AsyncIterator

from contracts.runs.requests import RunStatus
from contracts.wire import keys, names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.runtime.tasks import every
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed

SWEEP_EVERY_S, SWEEP_RETRY_S = 3600.0, 30.0
ENTRIES_PER_PAGE = 500
STORE_TIMEOUT_S = 2.0


async def watch(bus: Bus, retention_days: float) -> None:
    """Purge finished runs past their retention, about once an hour, until cancelled.

    Several planners may do so at once.
    """
    artifacts = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)

    async def sweep_now() -> None:
        await sweep(bus, artifacts, names.unix_ms() - int(retention_days * 86_400_000))

    await every(SWEEP_EVERY_S, sweep_now, (BusError, ArtifactFailed), "sweep_failed", retry_s=SWEEP_RETRY_S)


async def sweep(bus: Bus, artifacts: ArtifactClient, before: int) -> int:
    """Purge the runs that ended before `before` (Unix ms), artifacts and images included, and return how many.

    The index is read in the order of its last changes. The entry is purged last, so that a failed purge is repeated.
    While the artifact store does not answer, everything of the runs is purged but their artifacts and entries.

    Raises BusError at once, and ArtifactFailed at the end.
    """
    bucket = Bucket(bus, keys.RUNS_BUCKET)
    purged, failure = 0, None
    async for key, tenant, run in _ended(bucket, before):
        places = [(subjects.RUNS, subject) for subject in subjects.of_run(tenant, run)]
        # A request that its consumer has lost would make the purged run look queued.
        places.append((subjects.REQUESTS, subjects.request(tenant, run)))
        for stream, subject in places:
            await bus.api(f"STREAM.PURGE.{stream}", {"filter": subject})
        if failure is not None and failure.retryable:
            continue  # Each further request would wait for the store.
        try:
            await artifacts.delete_all(tenant, run=run)
        except ArtifactFailed as error:
            failure = error
        else:
            await bucket.purge(key)
            purged += 1
    if failure is not None:
        raise failure
    return purged


async def _ended(bucket: Bucket, before: int) -> AsyncIterator[tuple[str, str, str]]:
    """Yield key, tenant and run of the entries of runs that ended before `before` (Unix ms)."""
    after = 0
    while page := await bucket.page(">", after, ENTRIES_PER_PAGE):
        after = page[-1].sequence
        for entry in page:
            status = entry.parsed(RunStatus)
            if status is None or status.ended_at is None:
                continue
            try:
                tenant, _ = keys.parse_run_key(entry.key)
            except names.InvalidName:
                continue
            if status.ended_at >= before:
                return
            yield entry.key, tenant, status.run_id
