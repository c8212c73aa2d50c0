"""What API keys spend, followed in the bucket of runs.

Rule 1: a day of a key is followed from the first question about it, so keys without a budget cost nothing.
Rule 2: every write of a planner arrives here as it is made. What the connection or a lagging replica has lost is read
again: after each reconnect, and otherwise 1 s after the first read, then ever more rarely, once a minute at last.
Rule 3: a day that was not read since the last connection, or for too long, is not known: who asks waits for a read.
Rule 4: memory is bounded by the days and runs that are kept. A forgotten day is read again when it is needed. A run
that is forgotten still counts. If it spends more, its whole total is added once more, until its day is read anew.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from contracts.runs.requests import KeySpent
from contracts.wire import keys
from contracts.wire.names import InvalidName
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.kv import Bucket
from services.messaging.nats_connection import Subscription
from services.shared.budgets.totals import DayTotals, KeyDay, Spending

MAX_DAYS = 1000
"""Days of keys that are followed at once."""
MAX_RUNS = 200_000
"""Runs of all these days, of about 250 bytes each."""
_FIRST_READ_AGE_S, _MAX_READ_AGE_S = 1.0, 60.0


@dataclass(slots=True)
class _Day:
    totals: DayTotals = field(default_factory=DayTotals)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    subscription: Subscription | None = None
    read_at: float = float("-inf")
    """On the monotonic clock."""
    max_age_s: float = _FIRST_READ_AGE_S / 2


class KeySpending:
    """What the runs of API keys have spent, by key and day."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=1)
        self._days: OrderedDict[KeyDay, _Day] = OrderedDict()
        self._runs = 0

    def known(self, where: KeyDay) -> Spending | None:
        """Return what was spent on a day; None: it has to be read, by `current`."""
        day = self._days.get(where)
        if day is None or not self._is_current(day):
            return None
        self._days.move_to_end(where)
        return day.totals.sum

    async def current(self, where: KeyDay) -> Spending:
        """Return what was spent on a day. Waits until NATS answers."""
        day = self._days.setdefault(where, _Day())
        self._days.move_to_end(where)
        async with day.reading:
            if not self._is_current(day):
                await self._bus.until_answered(lambda: self._read(where, day))
        idle = [each for each, known in self._days.items() if not known.reading.locked()][:-1]
        while idle and (len(self._days) > MAX_DAYS or self._runs >= MAX_RUNS):
            oldest = self._days.pop(idle.pop(0))
            self._runs -= len(oldest.totals.runs)
            if oldest.subscription is not None:
                await oldest.subscription.stop()
        return day.totals.sum

    def take(self, where: KeyDay, run: str, spent: Spending) -> None:
        """Count the total of a run, if its day is followed."""
        day = self._days.get(where)
        if day is None:
            return
        before = len(day.totals.runs)
        day.totals.take(run, spent)
        self._runs += len(day.totals.runs) - before
        if self._runs > MAX_RUNS and len(day.totals.runs) > 1:
            day.totals.forget_oldest()
            self._runs -= 1

    def _is_current(self, day: _Day) -> bool:
        return day.read_at > self._bus.up_since and time.monotonic() - day.read_at < day.max_age_s

    async def _read(self, where: KeyDay, day: _Day) -> None:
        pattern, began_at = keys.spent_on(*where), time.monotonic()
        if day.subscription is None:
            day.subscription = await self._bucket.watch(pattern, partial(self._take_entry, where))
        try:
            entries = await self._bucket.latest(pattern)
        except Unavailable:  # More than one answer holds, or no answer.
            entries = [*(await self._bucket.get_many(await self._bucket.keys(pattern))).values()]
        for entry in entries:
            self._take_entry(where, entry.key, entry.data)
        is_first = day.read_at <= self._bus.up_since
        day.max_age_s = _FIRST_READ_AGE_S if is_first else min(_MAX_READ_AGE_S, 2 * day.max_age_s)
        day.read_at = began_at

    def _take_entry(self, where: KeyDay, key: str, data: bytes) -> None:
        try:
            self.take(where, keys.run_of_spent_key(key), Spending.stored(KeySpent.model_validate_json(data)))
        except (ValidationError, InvalidName):
            return  # It has expired, or another version wrote it.
