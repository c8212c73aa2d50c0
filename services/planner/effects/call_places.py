"""Limits how many calls one tenant has in a tool's queue, so that no tenant can fill it.

A tool has one queue of calls, in order of arrival, and runs `concurrency` of them at a time. A tenant may have at most
`concurrency` calls in the queue, or three quarters of that while several tenants call the tool. Further calls wait in
the handling that recorded them, which leaves places for other tenants. A waiting run costs as much as one that waits
for a model.

The NATS server knows the number of queued calls. It is asked while calls wait; in between, this planner counts the
calls that it sends and the outcomes that it receives. Several planners together may exceed the limit by a few calls.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

import structlog

from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError

logger = structlog.get_logger(__name__)

COUNT_EVERY_S = 0.25
SHARING_WINDOW_S = 60.0
"""Tenants that called a tool within this time share its queue."""
MAX_QUEUES = 10_000


@dataclass(slots=True)
class _Queue:
    """The queued calls of one tenant to one tool."""

    limit: int = 1
    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    checking: asyncio.Task[None] | None = None

    def release_waiting(self) -> None:
        """Give free places to waiting calls."""
        while self.waiting and self.under_way < self.limit:
            place = self.waiting.popleft()
            if not place.done():
                self.under_way += 1
                place.set_result(None)


class CallPlaces:
    """Gives tenants places in the queues of tools."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._seen: dict[str, dict[str, float]] = {}
        """Tool -> tenant -> time of its last call, on the monotonic clock."""

    def take(self, tenant: str, tool: str, concurrency: int) -> bool:
        """Take a place if one is free. Otherwise call `wait`."""
        queue = self._queue(tenant, tool)
        queue.limit = self._limit(tenant, tool, concurrency)
        if queue.waiting or queue.under_way >= queue.limit:
            return False
        queue.under_way += 1
        return True

    async def wait(self, tenant: str, tool: str, at_most_s: float) -> bool:
        """Wait for a place. Returns whether one became free in time."""
        queue = self._queue(tenant, tool)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(place)
        if queue.checking is None or queue.checking.done():
            queue.checking = asyncio.create_task(self._check(queue, subjects.call.pattern(tenant=tenant, tool=tool)))
        await asyncio.wait({place}, timeout=at_most_s)
        if place.done():
            return True
        place.cancel()
        return False

    def give_back(self, tenant: str, tool: str) -> None:
        """Free the place of a call that has ended or was not sent."""
        queue = self._queues.get((tenant, tool))
        if queue is None:
            return
        queue.under_way = max(0, queue.under_way - 1)
        queue.release_waiting()
        if not queue.under_way and not queue.waiting:
            del self._queues[tenant, tool]

    def _queue(self, tenant: str, tool: str) -> _Queue:
        queue = self._queues.get((tenant, tool))
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                self._queues = {key: kept for key, kept in self._queues.items() if kept.waiting}
            queue = self._queues[tenant, tool] = _Queue()
        return queue

    def _limit(self, tenant: str, tool: str, concurrency: int) -> int:
        now = time.monotonic()
        seen = {each: at for each, at in self._seen.get(tool, {}).items() if now - at < SHARING_WINDOW_S}
        self._seen[tool] = seen
        seen[tenant] = now
        return max(1, concurrency * 3 // 4) if len(seen) > 1 else concurrency

    async def _check(self, queue: _Queue, pattern: str) -> None:
        while queue.waiting:
            try:
                state = (await self._bus.api(f"STREAM.INFO.{subjects.CALLS}", {"subjects_filter": pattern}))["state"]
            except BusError as error:
                logger.debug("calls_not_counted", reason=str(error))
            else:
                queue.under_way = sum((state.get("subjects") or {}).values())
                queue.release_waiting()
            await asyncio.sleep(COUNT_EVERY_S)
