"""Writes the index entry of a requested run and its deadline timer, once the run is a second old.

A run that ends sooner needs neither. Until both are written its request is not acknowledged, so a redelivery would
write them.
"""

import asyncio
from contextlib import suppress

from contracts.wire.ids import unix_ms
from services.messaging.connection import Bus
from services.planner.logs import run_index
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs

OPEN_AFTER_S = 1.0


class Opening:
    """Both writes, by one handling of the run's request. `started_at`: when the run began, Unix ms."""

    def __init__(self, bus: Bus, logs: RunLogs, where: Address, started_at: int) -> None:
        self._bus = bus
        self._logs = logs
        self._where = where
        self._has_begun = False
        self._is_due = asyncio.Event()
        delay_s = OPEN_AFTER_S - (unix_ms() - started_at) / 1000
        self._opening = asyncio.create_task(self._open_in(min(OPEN_AFTER_S, delay_s)))

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

    async def _open_in(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_due.wait()
        self._has_begun = True
        run = await self._logs.load(self._where, fresh=True)
        while run.started is not None and run.terminal is None:
            deadline_at = run.deadline_at
            await run_index.enter(self._bus, run, run.started.request)
            run = await self._logs.load(self._where, fresh=True)
            if run.deadline_at == deadline_at:
                return  # Else this may have replaced the timer of a top-up.
