"""Limit the open runs of a tenant, so that one tenant cannot fill the queue of new runs.

An accepted run waits in REQUESTS until a planner has opened it, and an open run has a timer until it has ended. So the
runs of these messages are the open ones. The server lists them at most once in `MAX_COUNT_AGE_S` per tenant; runs that
this gateway accepts meanwhile are added. Several gateways together may admit a few more.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.gateway.errors import TooManyRuns, TryAgain
from services.gateway.stored_runs.queue import open_runs
from services.messaging.connection import Bus
from services.messaging.errors import BusError

MAX_COUNT_AGE_S = 1.0
MAX_COUNTED_TENANTS = 10_000


@dataclass(slots=True)
class _Count:
    """The open runs of a tenant, as counted at a time of the monotonic clock."""

    runs: int = 0
    counted_at: float = float("-inf")
    unwritten: int = 0
    """Runs that were admitted and whose requests are not stored yet."""
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Requests that arrive together count once."""


class RunQuota:
    """Admits runs while a tenant has fewer than `limit`."""

    def __init__(self, bus: Bus, limit: int) -> None:
        self._bus = bus
        self._limit = limit
        self._counts: dict[str, _Count] = {}

    @asynccontextmanager
    async def admitted(self, tenant: str) -> AsyncIterator[None]:
        """Admit one more run; its request is written within the block.

        Raises TooManyRuns, and TryAgain when NATS does not answer.
        """
        if len(self._counts) >= MAX_COUNTED_TENANTS:
            self._counts = {name: count for name, count in self._counts.items() if count.unwritten}
        count = self._counts.setdefault(tenant, _Count())
        async with count.counting:
            if time.monotonic() - count.counted_at > MAX_COUNT_AGE_S:
                count.runs, count.counted_at = await self._open_runs(tenant) + count.unwritten, time.monotonic()
            if count.runs >= self._limit:
                raise TooManyRuns(self._limit)
            count.runs += 1
            count.unwritten += 1
        try:
            yield
        finally:
            count.unwritten -= 1

    async def _open_runs(self, tenant: str) -> int:
        try:
            found = await open_runs(self._bus, tenant)
        except BusError as error:
            raise TryAgain("The message bus does not answer.") from error
        return len(found.requested | found.timed)
