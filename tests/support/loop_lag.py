"""How long an event loop was kept from its other tasks, in time of the processor: a busy machine changes nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_EVERY_S = 0.005


@dataclass
class Lag:
    """The longest time, in seconds, that the loop's thread worked between two turns of a task."""

    worst_s: float = 0.0


@asynccontextmanager
async def loop_lag() -> AsyncIterator[Lag]:
    """Measure while the block runs."""
    lag = Lag()

    async def measure() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(_EVERY_S)
            lag.worst_s = max(lag.worst_s, time.thread_time() - before)

    measuring = asyncio.create_task(measure())
    await asyncio.sleep(0)
    try:
        yield lag
        await asyncio.sleep(2 * _EVERY_S)  # What stood at the end is measured at the next turn.
    finally:
        measuring.cancel()
