"""What every side takes while nothing is asked of it, and what ended runs leave in memory."""

import asyncio
import time

from benchmarks.product import processes
from benchmarks.product.script import Script
from benchmarks.product.side import Side
from benchmarks.product.testbed import PRODUCT, Testbed
from benchmarks.ratio_tables import Table

_CLIENTS, _READINGS = 16, 7
_SETTLE_S = 1.0
"""Until what the last runs have left to do is done."""


async def memory(testbed: Testbed, idle_s: float) -> Table:
    """Memory and CPU time of every process at rest, some seconds after the first runs."""
    found = await asyncio.gather(*(_at_rest(side, idle_s) for side in testbed.sides.values()))
    table = Table("(h) at rest", ("", "memory MB (PSS)", "CPU ms a second"))
    for name, by_process in zip(testbed.sides, found, strict=True):
        table.add(name, *map(_shown, map(sum, zip(*by_process.values(), strict=True))))
        for process in (*processes.NAMES, "other") if name == PRODUCT else ():
            if process in by_process:
                table.add(f"of it {process}", *map(_shown, by_process[process]))
    return table


def _shown(value: float) -> str:
    return f"{value:.1f}"


async def _at_rest(side: Side, idle_s: float) -> dict[str, tuple[float, float]]:
    meter, began = side.meter(), time.monotonic()
    await asyncio.sleep(idle_s)
    used_s, took_s = await meter.used_s(), time.monotonic() - began
    used_mb = processes.memory_mb(side.pids())
    return {name: (used_mb[name], used_s[name] / took_s * 1e3) for name in used_mb}


async def growth(testbed: Testbed, runs: int) -> Table:
    """Memory of the product's processes, after each `runs` further runs without a call have ended."""
    side, asked = testbed.sides[PRODUCT], 0
    names = [name for name in processes.NAMES if name in side.pids().values()]
    table = Table("(h) memory MB (PSS) after ended runs", ("runs", *names), "Flat at the end: gateway, planner.")

    async def ask(until: int) -> None:
        nonlocal asked
        while asked < until:
            asked += 1
            await side.client.ask(Script())

    for until in range(0, _READINGS * runs, runs):
        await asyncio.gather(*(ask(until) for _ in range(_CLIENTS)))
        await asyncio.sleep(_SETTLE_S)
        used = processes.memory_mb(side.pids())
        table.add(str(until), *(_shown(used[name]) for name in names))
    return table
