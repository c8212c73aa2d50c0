"""How many runs of a tenant are open, so that one tenant cannot take the place of all others (fair shares).

An accepted run waits in REQUESTS until a planner has opened it, and an open run has a timer until it has ended: the names of these two
kinds of messages are the open runs. The server lists them; that is asked for at most once in `_LOOK_S` per tenant, and what this gateway
accepts meanwhile is added. Several gateways together may let a few more in.
"""

import time
from contextlib import suppress
from dataclasses import dataclass

from contracts import subjects
from services.runtime.bus import Bus
from services.runtime.errors import BusError

from .errors import TooManyRuns, TryAgain

_LOOK_S = 1.0
_MOST_TENANTS = 10_000


@dataclass(slots=True)
class _Count:
    """What was known of a tenant at a moment of the monotonic clock."""

    runs: int
    at: float


class OpenRuns:
    """Lets runs in while a tenant has fewer than `limit`."""

    def __init__(self, bus: Bus, limit: int) -> None:
        self._bus = bus
        self._limit = limit
        self._counts: dict[str, _Count] = {}

    async def admit(self, tenant: str) -> None:
        """Return if one more run may be accepted. Raises TooManyRuns, and TryAgain when NATS does not say."""
        count = self._counts.get(tenant)
        if count is None or time.monotonic() - count.at > _LOOK_S:
            if len(self._counts) >= _MOST_TENANTS:
                self._counts.clear()
            count = self._counts[tenant] = _Count(await self._look(tenant), time.monotonic())
        if count.runs >= self._limit:
            raise TooManyRuns(self._limit)
        count.runs += 1

    async def _look(self, tenant: str) -> int:
        found: set[str] = set()
        kinds = ((subjects.REQUESTS, subjects.requests_of(tenant)), (subjects.TIMERS, subjects.timers_of_all(tenant)))
        for stream, pattern in kinds:
            try:
                state = (await self._bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": pattern}))["state"]
            except BusError as error:
                raise TryAgain("The message bus does not answer.") from error
            for subject in state.get("subjects") or ():
                with suppress(subjects.InvalidName):  # Somebody else's: no planner begins a run with it.
                    found.add(subjects.parse(subject).run)
        return len(found)
