"""How long an event loop stood still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_EVERY_S = 0.005


@dataclass
class Lag:
    """The longest time, in seconds, that a turn of the loop came late."""

    worst_s: float = 0.0


@asynccontextmanager
async def loop_lag() -> AsyncIterator[Lag]:
    """Measure while the block runs."""
    lag = Lag()

    async def measure() -> None:
        clock = asyncio.get_running_loop().time
        while True:
            before = clock()
            await asyncio.sleep(_EVERY_S)
            lag.worst_s = max(lag.worst_s, clock() - before - _EVERY_S)

    measuring = asyncio.create_task(measure())
    await asyncio.sleep(0)
    try:
        yield lag
        await asyncio.sleep(2 * _EVERY_S)  # What stood at the end is measured at the next turn.
    finally:
        measuring.cancel()
