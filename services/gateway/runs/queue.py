"""Runs that wait for a planner: which they are, and the place of each in its tenant's queue.

The request of an accepted run stays in REQUESTS until a planner acknowledges it. A run that has begun has a timer in
TIMERS about a second later. So a run with a request and without a timer waits.

Rule 1: the server is asked once a second for each tenant, however many clients wait.
Rule 2: a place counts runs of the same tenant only: planners share their slots among tenants. Runs are ordered by the
sequence of their request. Of a run that another gateway has accepted only a lower bound is known, so a place may be too
high at first, and is never too low.
"""

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from contracts.runs.inbox import TimerName
from contracts.wire import names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError

_MIN_WAIT_S = 0.5
"""A run that begins sooner does not wait."""
_INTERVAL_S = 1.0
_BEGUN_KEPT_S = 5.0
"""A run whose first record was received here does not wait, although it has no timer for about a second."""

_RUN_TIMERS = frozenset(get_args(TimerName))


class OpenRuns(NamedTuple):
    """The open runs of a tenant: those with a request in REQUESTS, and those with a timer.

    `last_sequence`: of REQUESTS.
    """

    requested: frozenset[str]
    timed: frozenset[str]
    last_sequence: int


async def open_runs(bus: Bus, tenant: str) -> OpenRuns:
    """List the open runs of a tenant. Raises BusError."""
    requests, timers = [
        (await bus.api(f"STREAM.INFO.{row.kept_in}", {"subjects_filter": row.pattern(tenant=tenant)}))["state"]
        for row in (subjects.request, subjects.timer)
    ]
    timed = frozenset(found.run for found in _addresses(timers) if found.name in _RUN_TIMERS)
    return OpenRuns(frozenset(found.run for found in _addresses(requests)), timed, int(requests["last_seq"]))


def _addresses(state: dict[str, object]) -> Iterator[subjects.Address]:
    named = state.get("subjects")
    for subject in named if isinstance(named, dict) else ():
        with suppress(names.InvalidName):  # Not ours: no planner opens a run for it.
            yield subjects.parse(subject)


class Place(NamedTuple):
    """A run's place among the waiting runs of its tenant, from 1 on."""

    number: int
    total: int


@dataclass(eq=False)
class Waiter:
    """One client that waits for a run to begin. `changed` is done when the run has a new place."""

    tenant: str
    run: str
    sequence: int
    """Of the run's request in REQUESTS."""
    since: float = field(default_factory=time.monotonic)
    place: Place | None = None
    changed: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def move(self, place: Place) -> None:
        """Set the run's place."""
        if place != self.place:
            self.place = place
            if not self.changed.done():
                self.changed.set_result(None)

    def take(self) -> Place | None:
        """Return a place that is new since the last call, else None."""
        if not self.changed.done():
            return None
        self.changed = asyncio.get_running_loop().create_future()
        return self.place


class Queue:
    """The clients of this process whose runs have not begun."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiters: set[Waiter] = set()
        self._begun: dict[str, float] = {}
        """Run -> when a client of this process received its first record."""
        self._seen: dict[str, tuple[int, dict[str, int]]] = {}
        """Tenant -> the last sequence of REQUESTS a second ago, and the lowest possible sequence of each waiting run's
        request."""

    @contextmanager
    def entered(self, tenant: str, run: str, sequence: int | None) -> Iterator[Waiter]:
        """Yield a waiter, whose place is known for as long as the block lasts and the run has not begun.

        `sequence`: of the run's request in REQUESTS; None: the run does not wait.
        """
        waiter = Waiter(tenant, run, sequence or 0)
        if sequence is not None:
            self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)

    def begin(self, waiter: Waiter) -> None:
        """Note that a run has begun. It has no place from then on."""
        if waiter in self._waiters:
            self._waiters.discard(waiter)
            self._begun[waiter.run] = time.monotonic()

    async def keep_places(self) -> None:
        """Update the places of all waiters once a second, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            now = time.monotonic()
            self._begun = {run: at for run, at in self._begun.items() if now - at < _BEGUN_KEPT_S}
            waiting = defaultdict(list)
            for waiter in self._waiters:
                if now - waiter.since >= _MIN_WAIT_S:
                    waiting[waiter.tenant].append(waiter)
            self._seen = {tenant: seen for tenant, seen in self._seen.items() if tenant in waiting}
            for tenant, waiters in waiting.items():
                with suppress(BusError):
                    await self._place(tenant, waiters)

    async def _place(self, tenant: str, waiters: list[Waiter]) -> None:
        found = await open_runs(self._bus, tenant)
        waiting = found.requested - found.timed - self._begun.keys()
        last, known = self._seen.get(tenant, (0, {}))
        present = [waiter for waiter in waiters if waiter.run in waiting]
        lowest = {run: known.get(run, last) for run in waiting} | {waiter.run: waiter.sequence for waiter in present}
        self._seen[tenant] = found.last_sequence, lowest
        order = sorted(lowest.values())
        for waiter in present:
            waiter.move(Place(bisect_left(order, waiter.sequence) + 1, len(order)))
