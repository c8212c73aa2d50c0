"""Deletes all data of runs; and purges runs past their retention, and sessions in which nothing has happened since.

A `RunDeletion` in the index of runs requests a deletion, and hides the run at once. Any planner may repeat any step, so
another planner can finish the deletion if this one dies:

1. An open run is cancelled, with the same message as a client's cancel.
2. Its log is reduced to one fact, `deleted`, which stays for a day: a suspended handling that resumes then finds the
   log changed, and does not start the run again.
3. Its messages, timers, index entry and artifacts are removed, and with them the bytes that no other artifact shares.
   Its session gets a request to remove the run's turn.
4. After 30 seconds they are removed again: a tool or service that was still working may have written.
5. After a day they are removed once more, with the log and the deletion itself.
"""

import heapq
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from contracts.runs.events import TERMINAL, Deleted
from contracts.runs.inbox import CancelRequested
from contracts.runs.requests import RunDeletion, RunStatus
from contracts.sessions.records import SessionDeletionRequested, SessionEntry
from contracts.wire import keys, names, subjects
from contracts.wire.records import EVENTS_HEADER, Record, types_in
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.planner.effects.messages import forget_runs
from services.runtime.tasks import every
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed
from services.shared.runs.last_record import last_record

logger = structlog.get_logger(__name__)

SWEEP_EVERY_S, SWEEP_RETRY_S = 3600.0, 30.0
ENTRIES_PER_PAGE = 500


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
                await bus.publish_surely(subject, body, f"{found.key}.delete-{found.updated_at}")


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


CHECK_S = 1.0
SECOND_PURGE_AFTER_S = 30.0
LAST_PURGE_AFTER_S = 86_400.0
RETRY_S = 5.0
LAST_PURGE_SPREAD = 0.01
"""Random share of a day that is added, so that planners do not take the last step at the same moment."""
MESSAGES_PER_PAGE = 500
STORE_TIMEOUT_S = 2.0


@dataclass(order=True, slots=True)
class _Due:
    """The next step of a deletion, due `at` on the monotonic clock. `purges`: completed purges so far."""

    at: float
    tenant: str = field(compare=False)
    run: str = field(compare=False)
    deletion: RunDeletion = field(compare=False)
    purges: int = field(default=0, compare=False)


class Deletions:
    """Finds deletions and executes their steps."""

    def __init__(self, bus: Bus, *, again_s: float = SECOND_PURGE_AFTER_S, kept_s: float = LAST_PURGE_AFTER_S) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=2)
        self._artifacts = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)
        self._again_s = again_s
        self._kept_s = kept_s
        self._seen = 0
        self._due: list[_Due] = []

    async def carry_out_for_ever(self) -> None:
        """Execute deletions until cancelled. Never raises; a failed step is repeated."""
        await every(CHECK_S, self.check, (BusError,), "deletions_not_read")

    async def check(self) -> None:
        """Find new deletions, and execute the steps that are due. Raises BusError when the index cannot be read."""
        await self._find()
        while self._due and self._due[0].at <= time.monotonic():
            due = heapq.heappop(self._due)
            try:
                wait_s = await self._next(due)
            except (BusError, ArtifactFailed) as error:
                logger.warning("deletion_postponed", run_id=due.run, error=str(error))
                wait_s = RETRY_S
            if wait_s is not None:
                due.at = time.monotonic() + wait_s
                heapq.heappush(self._due, due)

    async def _find(self) -> None:
        while page := await self._bucket.page(keys.run_deletion.all, self._seen, MESSAGES_PER_PAGE):
            for entry in page:
                self._seen = entry.sequence
                with suppress(names.InvalidName):
                    tenant, run = keys.run_deletion.parsed(entry.key)
                    if (deletion := entry.parsed(RunDeletion)) is not None:  # None: the delete marker of a removed key.
                        heapq.heappush(self._due, _Due(0.0, tenant, run, deletion))

    async def _next(self, due: _Due) -> float | None:
        """Execute the next step. Return the seconds until another, or None when the deletion is complete.

        Raises BusError and ArtifactFailed.
        """
        deletion_key = keys.run_deletion(due.tenant, due.run)
        if due.purges and not (await self._bucket.get(deletion_key)).sequence:
            return None  # Another planner completed the deletion.
        last = await last_record(self._bus, due.tenant, due.run, 2)
        if last is None or TERMINAL.isdisjoint(types_in(last.headers)):
            cancel = CancelRequested(reason="deleted")
            headers = {"Nats-Msg-Id": f"{due.run}-cancel-to-delete"}  # It makes repetitions harmless.
            await self._bus.publish(subjects.control(due.tenant, due.run, "cancel"), cancel, headers)
            return CHECK_S
        await self._purge_all(due)
        if not due.purges and due.deletion.session_id is not None:
            await forget_runs(self._bus, due.tenant, due.deletion.session_id, [due.run])
        due.purges += 1
        spread = random.uniform(1, 1 + LAST_PURGE_SPREAD)  # noqa: S311, no secret
        left_s = due.deletion.at / 1000 + self._kept_s * spread - names.unix_ms() / 1000
        if due.purges == 1:
            logger.info("run_deleted", run_id=due.run, tenant=due.tenant)
            return self._again_s
        if left_s > 0:
            return left_s
        await self._purge(subjects.RUNS, subjects.log(due.tenant, due.run))
        await self._bucket.purge(deletion_key)
        return None

    async def _purge_all(self, due: _Due) -> None:
        tenant, run, requested_at = due.tenant, due.run, due.deletion.requested_at
        log, fact = subjects.log(tenant, run), Record(events=[Deleted()])
        last = await self._bus.last(subjects.RUNS, log, 2)
        if last is None or (last.headers or {}).get(EVENTS_HEADER) != fact.types():
            await self._bus.publish(log, fact, {EVENTS_HEADER: fact.types(), "Nats-Msg-Id": f"{run}-deleted"})
        await self._purge(subjects.RUNS, log, keep=1)
        for stream, pattern in subjects.everything_of(tenant, run):
            await self._purge(stream, pattern)
        if requested_at is not None:
            await self._bucket.purge(keys.run_key(tenant, requested_at, run))
        await self._bucket.purge(keys.proposal_entry.pattern(tenant=tenant, run=run))
        await self._artifacts.delete_all(tenant, run=run)

    async def _purge(self, stream: str, pattern: str, *, keep: int = 0) -> None:
        await self._bus.api(f"STREAM.PURGE.{stream}", {"filter": pattern, **({"keep": keep} if keep else {})})
