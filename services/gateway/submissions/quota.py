"""How many runs of a tenant are open, so that one tenant cannot take the place of all others (fair shares).

An accepted run waits in REQUESTS until a planner has opened it, and an open run has a timer until it has ended: the
names of these two kinds of messages are the open runs. The server lists them; that is asked for at most once in
`_LOOK_S` per tenant, and what this gateway accepts meanwhile is added, as is what it has admitted and not written yet.
Several gateways together may let a few more in.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from contracts import names, subjects
from services.gateway.errors import TooManyRuns, TryAgain
from services.messaging.connection import Bus
from services.messaging.errors import BusError

_LOOK_S = 1.0
_MOST_TENANTS = 10_000


@dataclass(slots=True)
class _Count:
    """What was known of a tenant at a moment of the monotonic clock."""

    runs: int = 0
    at: float = float("-inf")
    unwritten: int = 0
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Many requests that come together look once."""


class OpenRuns:
    """Lets runs in while a tenant has fewer than `limit`."""

    def __init__(self, bus: Bus, limit: int) -> None:
        self._bus = bus
        self._limit = limit
        self._counts: dict[str, _Count] = {}

    @asynccontextmanager
    async def admitted(self, tenant: str) -> AsyncIterator[None]:
        """Accept one more run; its request is written within the block.

        Raises TooManyRuns, and TryAgain when NATS does not say.
        """
        if len(self._counts) >= _MOST_TENANTS:
            self._counts = {name: kept for name, kept in self._counts.items() if kept.unwritten}
        count = self._counts.setdefault(tenant, _Count())
        async with count.looking:
            if time.monotonic() - count.at > _LOOK_S:
                count.runs, count.at = await self._look(tenant) + count.unwritten, time.monotonic()
            if count.runs >= self._limit:
                raise TooManyRuns(self._limit)
            count.runs += 1
            count.unwritten += 1
        try:
            yield
        finally:
            count.unwritten -= 1

    async def _look(self, tenant: str) -> int:
        found: set[str] = set()
        kinds = ((subjects.REQUESTS, subjects.requests_of(tenant)), (subjects.TIMERS, subjects.timers_of_all(tenant)))
        for stream, pattern in kinds:
            try:
                state = (await self._bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": pattern}))["state"]
            except BusError as error:
                raise TryAgain("The message bus does not answer.") from error
            for subject in state.get("subjects") or ():
                with suppress(names.InvalidName):  # Somebody else's: no planner begins a run with it.
                    found.add(subjects.parse(subject).run)
        return len(found)
