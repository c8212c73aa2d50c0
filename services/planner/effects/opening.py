"""Opens a requested run for others: its entry in the index, and its deadline timer.

Both are written once the run has lived for a second, since most of the runs that end sooner need neither: their request
is not acknowledged before, and a redelivery would do it.
"""

import asyncio
from contextlib import suppress

from contracts.ids import unix_ms
from services.messaging.connection import Bus
from services.planner.effects import run_index
from services.planner.effects.ownership_watch import Address
from services.planner.run_log import RunLogs

OPEN_AFTER_S = 1.0


class Opening:
    """The opening of one run, by one handling of its request. `started_at`: when the run began, Unix ms."""

    def __init__(self, bus: Bus, logs: RunLogs, where: Address, started_at: int) -> None:
        self._bus = bus
        self._logs = logs
        self._where = where
        self._has_begun = False
        self._is_due = asyncio.Event()
        delay_s = OPEN_AFTER_S - (unix_ms() - started_at) / 1000
        self._opening = asyncio.create_task(self._open_in(min(OPEN_AFTER_S, delay_s)))

    async def now(self) -> None:
        """Open the run now, if that has not been done."""
        self._is_due.set()
        await self._opening

    async def end(self) -> bool:
        """Wait for an opening that has begun, and drop one that has not. Return whether it had begun."""
        if not self._has_begun:
            self._opening.cancel()
        await asyncio.wait({self._opening})
        return self._has_begun

    async def _open_in(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_due.wait()
        self._has_begun = True
        # Another planner may have set a later deadline meanwhile, and its timer.
        run = await self._logs.load(self._where, fresh=True)
        if run.started is not None and run.terminal is None:
            await run_index.enter(self._bus, run, run.started)
