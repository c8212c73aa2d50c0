"""Keeps the books of a run beside its log, in the background: its index entry, its timers, what its API key has spent.

Rule 1: a message is acknowledged once all that was begun for it is written, so a redelivery would write the rest.
Rule 2: the index entry, that of the session and the deadline timer are written once the run is a second old. A run that
ends sooner needs neither entry of its beginning, and no timer. A run that begins or ceases to wait for people or a
top-up is entered again, by the handling that recorded that, or by a later one of the same message.
Rule 3: totals of spending never become smaller: an instance that was stopped for a while may come with old ones.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from contracts.runs.requests import KeySpent, RunRequested
from contracts.wire import keys, subjects
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket, Entry
from services.planner.effects import messages
from services.planner.effects.parts import Parts
from services.planner.logs import index
from services.planner.logs.ownership_watch import Address
from services.planner.run.state.run import Run
from services.runtime.tasks import is_set_within
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay, Spending

OPEN_AFTER_S = 1.0
YEAR_MS = 31_536_000_000
"""Delay of the timer of a run without a deadline. It changes nothing; the gateway counts open runs by their timers."""
SPENT_KEPT_S = 3 * 86_400
"""A run counts for the day of its request, however long it lasts; its last total is kept for three days."""


async def enter(bus: Bus, run: Run, request: RunRequested, load: Callable[[], Awaitable[Run]]) -> None:
    """Write the index entry of an opened run, and set its deadline timer. `load` reads its log. Idempotent."""
    at = run.deadline_at if run.deadline_at is not None else request.requested_at + YEAR_MS

    async def write_entry() -> None:
        if run.queued is None:
            await index.create_run(bus, run, request)
        else:
            await index.rewrite_run(bus, request, load)
            await messages.purge(bus, subjects.TIMERS, subjects.timer(request.tenant, request.run_id, "queue"))

    await asyncio.gather(write_entry(), messages.set_timer(bus, request, "deadline", at))


async def close(bus: Bus, run: Run, request: RunRequested, *, has_timers: bool) -> None:
    """Write the index entry of an ended run, and cancel its timers, if it may have any. Idempotent."""
    await index.end_run(bus, run, request)
    if has_timers:
        await messages.cancel_timers(bus, request.tenant, request.run_id)


class Opening:
    """Both writes, by one handling of a run's request, and that of its session. `started_at`: Unix ms."""

    def __init__(self, parts: Parts, address: Address, request: RunRequested, started_at: int) -> None:
        self._parts = parts
        self._address = address
        self._has_begun = False
        self._is_due = asyncio.Event()
        delay_s = OPEN_AFTER_S - (unix_ms() - started_at) / 1000
        self._opening = asyncio.create_task(self._open_in(request, min(OPEN_AFTER_S, delay_s)))

    async def now(self) -> None:
        """Write both now, unless that was done."""
        self._is_due.set()
        await self._opening

    async def end(self) -> bool:
        """Wait for the writes if they have begun, and do not begin them otherwise. Return whether they had begun."""
        if not self._has_begun:
            self._opening.cancel()
        await asyncio.wait({self._opening})
        return self._has_begun

    async def _open_in(self, request: RunRequested, seconds: float) -> None:
        with self._parts.sessions.entry_follows(request):
            await is_set_within(self._is_due, seconds)
        self._has_begun = True
        load = partial(self._parts.logs.load, self._address, fresh=True)
        run = await load()
        while run.started is not None and run.terminal is None:
            deadline_at, request = run.deadline_at, run.started.request
            await asyncio.gather(enter(self._parts.bus, run, request, load), self._parts.sessions.write_entry(request))
            run = await load()
            if run.deadline_at == deadline_at:
                return  # Else this may have replaced the timer of a top-up.


class KeySpendingWriter:
    """The totals of one run, by one handling of a message."""

    def __init__(self, bus: Bus, spending: KeySpending) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.RUNS_BUCKET)
        self._spending = spending
        self._total = Spending()
        self._entry: Entry | None = None
        """What is stored, as far as this handling knows; None: it has not read it."""
        self._writing: asyncio.Task[None] | None = None

    def store_soon(self, run: Run) -> None:
        """Count what the run has spent by now, and begin to store it."""
        request = run.request
        if request is None or request.key_budget is None:
            return
        if self._total == (total := self._total.at_least(Spending.of(run.usage))):
            return
        self._total = total
        self._spending.take(KeyDay.of(request), request.run_id, self._total)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(KeyDay.of(request).key_of(request.run_id)))

    async def end(self) -> None:
        """Return once everything is stored."""
        if self._writing is not None:
            await self._writing

    async def _write(self, key: str) -> None:
        entry = self._entry or await self._bucket.get(key)
        while True:
            found = entry.parsed(KeySpent)
            stored = Spending() if found is None else Spending.stored(found)
            if self._total == stored:
                break
            self._total = self._total.at_least(stored)
            value = self._total.entry()
            try:
                revision = await self._bucket.update(key, value, revision=entry.sequence, ttl_s=SPENT_KEPT_S)
                entry = Entry(key, revision, value.model_dump_json().encode())
            except Outdated:
                entry = await self._bus.until_answered(lambda: self._bucket.get_from_leader(key))
        self._entry = entry


async def read_before_a_call(spending: KeySpending, request: RunRequested | None) -> bool:
    """Return whether what the run's API key has spent was not known yet, and had to be read."""
    if request is None or request.key_budget is None or spending.known(KeyDay.of(request)) is not None:
        return False
    await spending.current(KeyDay.of(request))
    return True
