"""What the product takes while nothing is asked of it."""

import asyncio
import time

from benchmarks.product import processes
from benchmarks.product.place import Place, Side
from benchmarks.ratio_tables import Table


async def memory(place: Place, idle_s: float) -> Table:
    """Memory and CPU time of every process at rest, some seconds after the first runs."""
    product, bare = await asyncio.gather(*(_at_rest(side, idle_s) for side in place.sides().values()))
    table = Table("(h) at rest", ("process", "memory MB (PSS)", "CPU ms a second"))
    rows = {"all of the product": _sum(product), **product, "bare loop": _sum(bare)}
    for name in ("all of the product", *processes.NAMES, "other", "bare loop"):
        if name in rows:
            used_mb, cpu_ms = rows[name]
            table.add(name, f"{used_mb:.0f}", f"{cpu_ms:.1f}")
    return table


async def _at_rest(side: Side, idle_s: float) -> dict[str, tuple[float, float]]:
    meter, began = side.meter(), time.monotonic()
    await asyncio.sleep(idle_s)
    used_s, took_s = await meter.used_s(), time.monotonic() - began
    used_mb = processes.memory_mb(side.pids())
    return {name: (used_mb[name], used_s[name] / took_s * 1e3) for name in used_mb}


def _sum(rows: dict[str, tuple[float, float]]) -> tuple[float, float]:
    memory, cpu = zip(*rows.values(), strict=True)
    return sum(memory), sum(cpu)
