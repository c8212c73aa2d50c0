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

import structlog

from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.fairness import FairSemaphore

logger = structlog.get_logger(__name__)

COUNT_EVERY_S = 0.25
SHARING_WINDOW_S = 60.0
"""Tenants that called a tool within this time share its queue."""
MAX_QUEUES = 10_000
PLACE_WAIT_S = 10.0
"""After this wait for a free place, a call is checked again: its run may have ended."""


class CallPlaces:
    """Gives tenants places in the queues of tools."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._places: FairSemaphore[tuple[str, str]] = FairSemaphore()
        self._counting: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._seen: dict[str, dict[str, float]] = {}
        """Tool -> tenant -> time of its last call, on the monotonic clock."""

    def take_now(self, tenant: str, tool: str, concurrency: int) -> bool:
        """Take a place if one is free. Otherwise call `wait`."""
        if len(self._places) >= MAX_QUEUES:
            self._places.forget_taken()
        now = time.monotonic()
        seen = {each: at for each, at in self._seen.get(tool, {}).items() if now - at < SHARING_WINDOW_S}
        self._seen[tool] = seen
        seen[tenant] = now
        limit = max(1, concurrency * 3 // 4) if len(seen) > 1 else concurrency
        return self._places.take_now((tenant, tool), limit)

    async def wait(self, tenant: str, tool: str) -> bool:
        """Wait for a place. Returns whether one became free within `PLACE_WAIT_S`."""
        key = (tenant, tool)
        if key not in self._counting:
            self._counting[key] = asyncio.create_task(self._count(key))
        return await self._places.wait(key, PLACE_WAIT_S)

    def give_back(self, tenant: str, tool: str) -> None:
        """Free the place of a call that has ended or was not sent."""
        self._places.give_back((tenant, tool))

    async def _count(self, key: tuple[str, str]) -> None:
        """Ask the server while calls wait."""
        try:
            while self._places.is_waited_for(key):
                try:
                    info = {"subjects_filter": subjects.call.pattern(tenant=key[0], tool=key[1])}
                    state = (await self._bus.api(f"STREAM.INFO.{subjects.CALLS}", info))["state"]
                except BusError as error:
                    logger.debug("calls_not_counted", reason=str(error))
                else:
                    self._places.correct(key, sum((state.get("subjects") or {}).values()))
                await asyncio.sleep(COUNT_EVERY_S)
        finally:
            del self._counting[key]
