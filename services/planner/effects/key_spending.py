"""Stores what a run has spent for its API key, where the key has a budget: the run's totals, after each record.

Until they are stored, the message is not acknowledged, so a redelivery would store them. Totals in the bucket never
become smaller: an instance that was stopped for a while may come with old ones.
"""

import asyncio

from contracts.runs.requests import KeySpent, RunRequested
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket, Entry
from services.planner.run.state.run import Run
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay, Spending

TTL_S = 3 * 86_400
"""A run counts for the day of its request, however long it lasts; its last total is kept for three days."""


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
        while self._total != (stored := _spent(entry)):
            self._total = self._total.at_least(stored)
            value = self._total.entry()
            try:
                revision = await self._bucket.update(key, value, revision=entry.sequence, ttl_s=TTL_S)
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


def _spent(entry: Entry) -> Spending:
    stored = entry.parsed(KeySpent)
    return Spending() if stored is None else Spending.stored(stored)
