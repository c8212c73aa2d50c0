"""The index of runs (KV `runs`), and the purge of runs past their retention.

The index is derived from the logs, so its writes are not fenced: `running` is only written where no entry exists, and
the status of an ended run replaces any entry.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog

from contracts.runs.requests import RunRequested, RunStatus
from contracts.wire import keys, names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket
from services.planner.effects import timers
from services.planner.run.state.run import Run
from services.planner.upkeep.deletions import forget_artifacts
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed
from services.shared.runs.run_status import status_of

logger = structlog.get_logger(__name__)

SWEEP_EVERY_S, SWEEP_RETRY_S = 3600.0, 30.0
STORE_TIMEOUT_S = 2.0
ENTRIES_PER_PAGE = 500
YEAR_MS = 31_536_000_000
"""Delay of the timer of a run without a deadline. It changes nothing; the gateway counts open runs by their timers."""


def _key(request: RunRequested) -> str:
    return keys.run_key(request.tenant, request.requested_at, request.run_id)


def _status(run: Run, request: RunRequested) -> RunStatus:
    """Return the status of the run, without its payload."""
    return status_of(
        request.run_id,
        request,
        run.terminal,
        is_open=run.started is not None,
        started_at=run.started_at or None,
        ended_at=run.ended_at or None,
    )


async def enter(bus: Bus, run: Run, request: RunRequested) -> None:
    """Write the index entry of an opened run, and set its deadline timer. Idempotent."""
    at = run.deadline_at if run.deadline_at is not None else request.requested_at + YEAR_MS
    entering = create(bus, run, request) if run.queued is None else _replace_queued(bus, run, request)
    await asyncio.gather(entering, timers.set_timer(bus, request, "deadline", at))


async def create(bus: Bus, run: Run, request: RunRequested) -> None:
    """Write the index entry of a run, if it has none. Idempotent."""
    with suppress(Outdated):
        await Bucket(bus, keys.RUNS_BUCKET).create(_key(request), _status(run, request))


async def _replace_queued(bus: Bus, run: Run, request: RunRequested) -> None:
    """Write `running` unless the entry says that the run has ended, and cancel the timer of its wait."""
    bucket = Bucket(bus, keys.RUNS_BUCKET)
    entry = await bucket.get(_key(request))
    status = entry.parsed(RunStatus)
    if status is None or status.ended_at is None:
        with suppress(Outdated):
            await bucket.update(_key(request), _status(run, request), revision=entry.sequence)
    await timers.purge(bus, subjects.TIMERS, subjects.timer(request.tenant, request.run_id, "queue"))


async def close(bus: Bus, run: Run, request: RunRequested, *, has_timers: bool) -> None:
    """Write the index entry of an ended run, and cancel its timers, if it may have any. Idempotent."""
    await Bucket(bus, keys.RUNS_BUCKET).put(_key(request), _status(run, request))
    if has_timers:
        await timers.cancel_timers(bus, request.tenant, request.run_id)


async def forget_context(bus: Bus, tenant: str, run: str) -> None:
    """Remove the `tool_context` of a run that was cancelled before it was opened."""
    await timers.purge(bus, subjects.RUNS, subjects.context(tenant, run))


async def sweep(bus: Bus, retention_days: float) -> None:
    """Purge finished runs past their retention, about once an hour, until cancelled.

    Several planners may do so at once.
    """
    artifacts = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)
    while True:
        pause_s = SWEEP_EVERY_S
        try:
            await sweep_once(bus, artifacts, int((time.time() - retention_days * 86_400) * 1000))
        except (BusError, ArtifactFailed) as error:
            logger.warning("sweep_failed", error=str(error))
            pause_s = SWEEP_RETRY_S
        await asyncio.sleep(pause_s)


async def sweep_once(bus: Bus, artifacts: ArtifactClient, before: int) -> int:
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
            await forget_artifacts(artifacts, tenant, run=run)
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
