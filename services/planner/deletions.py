"""Delete runs: whatever a run has left, wherever it is. Asked for with a `RunDeletion` in the index of runs, which hides the run at once.

Every step may be repeated, by any planner, so a planner that dies in the middle is replaced by its successor or by another one:

1. A run that is open is cancelled, like by anybody else.
2. Its log shrinks to one fact, `deleted`. That stays for a while: whoever was stopped in the middle of handling the run finds the log
   moved on, instead of beginning it anew.
3. Its messages, timers, index entry and artifacts go, and with them the bytes that no other artifact shares.
4. Shortly after, the same again: a tool or a service that was at work when the run ended may have written once more.
5. A day later, the same again, the log and the deletion itself included.
"""

import asyncio
import heapq
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from contracts import subjects
from contracts.events import TERMINAL, Deleted
from contracts.inbox import CancelRequested
from contracts.records import EVENTS_HEADER, Record
from contracts.runs import RunDeletion
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of
from services.messaging.errors import BusError
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound

logger = structlog.get_logger(__name__)

_BUCKET = f"KV_{subjects.RUNS_BUCKET}"
_PREFIX = f"$KV.{subjects.RUNS_BUCKET}."
_LOOK_S = 1.0
_AGAIN_S = 30.0
_KEPT_S = 86_400.0
_RETRY_S = 5.0
_SPREAD = 0.01
"""Of the day: several planners must not come to the last step of one deletion at the same moment."""
_PAGE = 500
_PATIENCE_S = 2.0


@dataclass(order=True, slots=True)
class _Due:
    """When to look at a deletion next, on the monotonic clock. `purges`: how often everything was removed so far."""

    at: float
    tenant: str = field(compare=False)
    run: str = field(compare=False)
    deletion: RunDeletion = field(compare=False)
    purges: int = field(default=0, compare=False)


class Deletions:
    """Carries deletions out."""

    def __init__(self, bus: Bus, *, again_s: float = _AGAIN_S, kept_s: float = _KEPT_S) -> None:
        self._bus = bus
        self._artifacts = ArtifactClient(bus, patience_s=_PATIENCE_S)
        self._again_s = again_s
        self._kept_s = kept_s
        self._seen = 0
        self._due: list[_Due] = []

    async def carry_out_for_ever(self) -> None:
        """Look for deletions all the time. Raises nothing: what fails is tried again."""
        while True:
            try:
                await self.look()
            except BusError as error:
                logger.warning("deletions_not_read", error=str(error))
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Find new deletions, and take the next step of each that is due. Raises BusError when they cannot be read."""
        await self._find()
        while self._due and self._due[0].at <= time.monotonic():
            due = heapq.heappop(self._due)
            try:
                wait_s = await self._next(due)
            except (BusError, ArtifactFailed) as error:
                logger.warning("deletion_postponed", run_id=due.run, error=str(error))
                wait_s = _RETRY_S
            if wait_s is not None:
                due.at = time.monotonic() + wait_s
                heapq.heappush(self._due, due)

    async def _find(self) -> None:
        reader = await self._bus.reader(_BUCKET)
        while True:
            page, _ = await reader.page(_PREFIX + subjects.ALL_DELETIONS, self._seen + 1, _PAGE)
            for message in page:
                self._seen = sequence_of(message)
                with suppress(ValidationError, subjects.InvalidName):  # The mark of one that was removed is no deletion.
                    tenant, run = subjects.parse_deletion((message.headers or {}).get("Nats-Subject", ""))
                    heapq.heappush(self._due, _Due(0.0, tenant, run, RunDeletion.model_validate_json(message.data)))
            if not page:
                return

    async def _next(self, due: _Due) -> float | None:
        """Take the next step and return after how many seconds there is another; None: it is done. Raises BusError and ArtifactFailed."""
        if due.purges and await self._bus.last(_BUCKET, _PREFIX + subjects.deletion_key(due.tenant, due.run), 2) is None:
            return None  # Another planner was the last.
        if not await self._is_ended(due.tenant, due.run):
            await self._cancel(due.tenant, due.run)
            return _LOOK_S
        await self._purge_all(due)
        due.purges += 1
        left_s = due.deletion.at / 1000 + self._kept_s * random.uniform(1, 1 + _SPREAD) - time.time()  # noqa: S311, a spread, not a secret
        if due.purges == 1:
            logger.info("run_deleted", run_id=due.run, tenant=due.tenant)
            return self._again_s
        if left_s > 0:
            return left_s
        await self._purge(subjects.RUNS, subjects.log(due.tenant, due.run))
        await self._purge(_BUCKET, _PREFIX + subjects.deletion_key(due.tenant, due.run))
        return None

    async def _is_ended(self, tenant: str, run: str) -> bool:
        last = await self._bus.last(subjects.RUNS, subjects.log(tenant, run), 2)
        return last is not None and not TERMINAL.isdisjoint((last.headers or {}).get(EVENTS_HEADER, "").split(","))

    async def _cancel(self, tenant: str, run: str) -> None:
        """Ask for the run's end, as people do. Once it has been handled, it may be asked for again."""
        message = CancelRequested(reason="deleted").model_dump_json().encode()
        await self._bus.publish(subjects.control(tenant, run, "cancel"), message, {"Nats-Msg-Id": f"{run}-cancel-to-delete"})

    async def _purge_all(self, due: _Due) -> None:
        tenant, run, requested_at = due.tenant, due.run, due.deletion.requested_at
        log, fact = subjects.log(tenant, run), Record(events=[Deleted()])
        last = await self._bus.last(subjects.RUNS, log, 2)
        if last is None or (last.headers or {}).get(EVENTS_HEADER) != fact.types():
            await self._bus.publish(log, fact.model_dump_json().encode(), {EVENTS_HEADER: fact.types(), "Nats-Msg-Id": f"{run}-deleted"})
        await self._purge(subjects.RUNS, log, keep=1)
        for stream, pattern in subjects.everything_of(tenant, run):
            await self._purge(stream, pattern)
        if requested_at is not None:
            await self._purge(_BUCKET, _PREFIX + subjects.run_key(tenant, requested_at, run))
        await forget_artifacts(self._artifacts, tenant, run)

    async def _purge(self, stream: str, pattern: str, *, keep: int = 0) -> None:
        await self._bus.api(f"STREAM.PURGE.{stream}", {"filter": pattern, **({"keep": keep} if keep else {})})


async def forget_artifacts(artifacts: ArtifactClient, tenant: str, run: str) -> None:
    """Delete what the tools of a run have stored, and its images. Raises ArtifactFailed."""
    cursor: int | None = 0
    while cursor is not None:
        page = await artifacts.list(tenant, run=run, limit=_PAGE, cursor=cursor)
        for stored in page.artifacts:
            with suppress(ArtifactNotFound):  # Another planner was quicker.
                await artifacts.delete(tenant, stored.ref.artifact_id)
        cursor = page.next_cursor
