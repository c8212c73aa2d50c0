"""Limit the open runs of a tenant, so that one tenant cannot fill the queue of new runs, and those of an API key.

An accepted run waits in REQUESTS until a planner has opened it, and an open run has a timer until it has ended. So the
runs of these messages are the open ones, whichever gateway accepted them. The server lists them at most once in
`MAX_COUNT_AGE_S` per tenant or limited key; runs that this gateway accepts meanwhile are added. Several gateways
together may admit a few more.

The key of a run stands in its request. It is read once for each run that another gateway accepted, and for none if the
caller's key has no limit.

The budget of a key limits what it spends in a day. What a run spends becomes known while it runs: runs that are
admitted together may exceed the budget by what they spend until the planners know of each other's model calls, within
two seconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import get_args

from contracts.runs.inbox import TimerName
from contracts.runs.requests import KeyBudget
from contracts.wire import names, subjects
from contracts.wire.names import unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.errors import KeyBudgetSpent, TooManyRuns, TryAgain
from services.gateway.runs.reader import RunReader
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.runtime.newest import Newest
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay, Spending, exhausted, midnight_after
from services.shared.runs.causes import CAUSES

MAX_COUNT_AGE_S = 1.0
MAX_FULL_COUNT_AGE_S = 0.2
"""The same of a count that refuses runs of a key: their limits are small, and their callers wait for runs to end."""
MAX_COUNTED = 10_000
"""Tenants and keys with a count."""
MAX_KNOWN_RUNS = 10_000
"""Runs whose key is remembered: as many as ten tenants may have open."""
_PARALLEL_READS = 32
_RUN_TIMERS = frozenset(get_args(TimerName))


async def open_runs(bus: Bus, tenant: str) -> frozenset[str]:
    """Return the open runs of a tenant: those with a request in REQUESTS, and those with a timer. Raises BusError."""
    found = set()
    for row in (subjects.request, subjects.timer):
        for subject in await bus.subjects_in(row.kept_in, row.pattern(tenant=tenant)):
            with suppress(names.InvalidName):  # Not ours: no planner opens a run for it.
                address = subjects.parse(subject)
                if row is subjects.request or address.name in _RUN_TIMERS:
                    found.add(address.run)
    return frozenset(found)


@dataclass(slots=True)
class _Count:
    """Open runs, as counted at a time of the monotonic clock."""

    runs: int = 0
    counted_at: float = float("-inf")
    unwritten: int = 0
    """Runs that were admitted and whose requests are not stored yet."""
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Requests that arrive together count once."""


class RunQuota:
    """Admits runs while a tenant has fewer than `limit`, and a key fewer than its own limit."""

    def __init__(self, bus: Bus, runs: RunReader, limit: int) -> None:
        self._bus = bus
        self._runs = runs
        self._limit = limit
        self._counts: dict[tuple[str, str | None], _Count] = {}
        """By tenant and, for a count of one key, its id."""
        self._key_ids = Newest[str, str](MAX_KNOWN_RUNS)
        """Run -> id of the key that started it."""

    @asynccontextmanager
    async def admitted(self, caller: Caller, run: str) -> AsyncIterator[None]:
        """Admit one more run; its request is written within the block.

        Raises TooManyRuns, and TryAgain when NATS does not answer.
        """
        async with AsyncExitStack() as admitted:
            # The key's limit first: what it refuses must not count for the tenant.
            if caller.max_runs is not None:
                await admitted.enter_async_context(self._one_more(caller.tenant, caller.key_id, caller.max_runs))
            await admitted.enter_async_context(self._one_more(caller.tenant, None, self._limit))
            self._key_ids[run] = caller.key_id
            yield

    @asynccontextmanager
    async def _one_more(self, tenant: str, key_id: str | None, limit: int) -> AsyncIterator[None]:
        if len(self._counts) >= MAX_COUNTED:
            self._counts = {name: count for name, count in self._counts.items() if count.unwritten}
        count = self._counts.setdefault((tenant, key_id), _Count())
        async with count.counting:
            max_age_s = MAX_FULL_COUNT_AGE_S if key_id is not None and count.runs >= limit else MAX_COUNT_AGE_S
            if time.monotonic() - count.counted_at > max_age_s:
                count.runs, count.counted_at = await self._open_runs(tenant, key_id) + count.unwritten, time.monotonic()
            if count.runs >= limit:
                raise TooManyRuns(limit, "tenant" if key_id is None else "API key")
            count.runs += 1
            count.unwritten += 1
        try:
            yield
        finally:
            count.unwritten -= 1

    async def _open_runs(self, tenant: str, key_id: str | None = None) -> int:
        try:
            runs = await open_runs(self._bus, tenant)
            if key_id is None:
                return len(runs)
            slots = asyncio.Semaphore(_PARALLEL_READS)
            await asyncio.gather(*(self._read_key_id(tenant, run, slots) for run in runs - self._key_ids.keys()))
        except BusError as error:
            raise TryAgain("The message bus does not answer.") from error
        return sum(self._key_ids.get(run) == key_id for run in runs)

    async def _read_key_id(self, tenant: str, run: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            stored = await self._runs.find(tenant, run)
        request = stored.request() if stored is not None else None
        # Nobody waits for a summary, and its key may ask for the next run meanwhile.
        counts = request is not None and CAUSES[request.cause].counts_for_key
        self._key_ids[run] = request.key_id if request is not None and counts else ""


@dataclass(frozen=True, slots=True)
class Today:
    """The day of a key, by UTC. `ends_at`: Unix ms."""

    budget: KeyBudget
    spent: Spending
    ends_at: int


class KeyBudgets:
    """Checks the budgets of API keys. `wait_s`: how long NATS is waited for."""

    def __init__(self, bus: Bus, wait_s: float) -> None:
        self._spending = KeySpending(bus)
        self._wait_s = wait_s

    async def check(self, caller: Caller) -> None:
        """Raise KeyBudgetSpent if the key may start no run any more today, and TryAgain when NATS does not answer."""
        today = await self.today(caller)
        if today is not None and (limit := exhausted(today.budget, today.spent)) is not None:
            raise KeyBudgetSpent(limit, (today.ends_at - unix_ms()) // 1000 + 1)

    async def today(self, caller: Caller) -> Today | None:
        """Return the day of the caller's key; None: it has no budget. Raises TryAgain when NATS does not answer."""
        budget, now = caller.budget, unix_ms()
        if budget is None:
            return None
        where = KeyDay.at(caller.tenant, caller.key_id, now)
        spent = self._spending.known(where)
        if spent is None:
            try:
                async with asyncio.timeout(self._wait_s):
                    spent = await self._spending.current(where)
            except TimeoutError as error:
                raise TryAgain("The message bus does not answer.") from error
        return Today(budget, spent, midnight_after(now))
