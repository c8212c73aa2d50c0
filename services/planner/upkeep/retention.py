"""Purges the runs past their retention, and the sessions in which nothing has happened since then."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from contracts.runs.requests import RunStatus
from contracts.sessions.records import SessionDeletionRequested, SessionEntry
from contracts.wire import keys, names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.planner.effects.messages import forget_runs
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


class _Ended(NamedTuple):
    """A run in the index. `key`: of its entry."""

    tenant: str
    status: RunStatus
    key: str


async def sweep(bus: Bus, artifacts: ArtifactClient, before: int) -> int:
    """Purge the runs that ended before `before` (Unix ms), artifacts and images included, and return how many.

    Sessions forget what was said in these runs, and those in which nothing has happened since then are deleted.
    The index is read in the order of its last changes. The entry is purged last, so that a failed purge is repeated.
    While the artifact store does not answer, everything of the runs is purged but their artifacts and entries.

    Raises BusError at once, and ArtifactFailed at the end.
    """
    bucket = Bucket(bus, keys.RUNS_BUCKET)
    purged, failure = 0, None
    await _delete_sessions(bus, bucket, before)
    async for ended in _ended(bucket, before):
        gone: list[_Ended] = []
        for each in ended:
            messages = [(subjects.RUNS, subject) for subject in subjects.of_run(each.tenant, each.status.run_id)]
            # A request that its consumer has lost would make the purged run look queued.
            messages.append((subjects.REQUESTS, subjects.request(each.tenant, each.status.run_id)))
            for stream, subject in messages:
                await bus.api(f"STREAM.PURGE.{stream}", {"filter": subject})
            if failure is not None and failure.retryable:
                continue  # Each further request would wait for the store.
            try:
                await artifacts.delete_all(each.tenant, run=each.status.run_id)
            except ArtifactFailed as error:
                failure = error
            else:
                gone.append(each)
        await _forget(bus, gone)
        for each in gone:
            await bucket.purge(each.key)
        purged += len(gone)
    if failure is not None:
        raise failure
    return purged


async def _forget(bus: Bus, gone: list[_Ended]) -> None:
    """Tell each session which of its runs are gone."""
    by_session: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for tenant, status, _ in gone:
        if status.cause == "summary":
            continue  # It had no turn.
        by_session[tenant, status.session_id or names.own_session_id(status.run_id)].append(status.run_id)
    for (tenant, session_id), runs in by_session.items():
        await forget_runs(bus, tenant, session_id, runs)


async def _delete_sessions(bus: Bus, bucket: Bucket, before: int) -> None:
    """Request the deletion of the sessions in which nothing has happened since `before` (Unix ms)."""
    after = 0
    while page := await bucket.page(keys.session_entry.all, after, ENTRIES_PER_PAGE):
        after = page[-1].sequence
        for entry in page:
            found = entry.parsed(SessionEntry)
            if found is None or found.updated_at >= before:
                continue
            if found.current_run or found.queued_runs or found.open_pauses or found.open_tasks or found.open_decisions:
                continue
            with suppress(names.InvalidName):
                tenant, _ = keys.session_entry.parsed(entry.key)
                body = SessionDeletionRequested(by="retention", unchanged_since=found.updated_at)
                subject = subjects.session_inbox(tenant, found.key, "delete")
                await bus.publish_surely(
                    subject, body.model_dump_json().encode(), f"{found.key}.delete-{found.updated_at}"
                )


async def _ended(bucket: Bucket, before: int) -> AsyncIterator[list[_Ended]]:
    """Yield, in pages, the runs that ended before `before` (Unix ms)."""
    after = 0
    while page := await bucket.page(">", after, ENTRIES_PER_PAGE):
        after = page[-1].sequence
        found: list[_Ended] = []
        for entry in page:
            status = entry.parsed(RunStatus)
            if status is None or status.ended_at is None:
                continue
            try:
                tenant, _ = keys.parse_run_key(entry.key)
            except names.InvalidName:
                continue
            if status.ended_at >= before:
                yield found
                return
            found.append(_Ended(tenant, status, entry.key))
        yield found
