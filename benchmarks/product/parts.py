"""The parts of (h), and how much each of them measures."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from benchmarks.product.idle import memory
from benchmarks.product.load import burst, rate, tokens
from benchmarks.product.place import Place, started
from benchmarks.product.recovery import recovery
from benchmarks.product.steps import flatness, steps
from benchmarks.ratio_tables import Table

PARTS = ("memory", "steps", "rate", "tokens", "burst", "recovery")
"""In the order in which they are measured: memory first, while hardly anything has been done."""


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    `few` are the rounds of what takes long: long runs, bursts, kills, more than 20 streams. `flat` are the steps of a
    long run at which its cost is taken, `widths` the runs that stream at once, `tokens` the length of their answers.
    """

    rounds: int
    few: int
    rate_s: float
    flat: tuple[int, ...]
    widths: tuple[int, ...]
    tokens: int
    burst: int
    idle_s: float


QUICK = Effort(rounds=3, few=1, rate_s=2, flat=(10, 200), widths=(1, 20), tokens=50, burst=300, idle_s=3)
FULL = Effort(rounds=5, few=3, rate_s=4, flat=(10, 200), widths=(1, 20), tokens=100, burst=300, idle_s=5)
LONG = replace(FULL, flat=(10, 200, 1000), widths=(1, 20, 100, 300))
SMALLEST = Effort(rounds=1, few=1, rate_s=0.2, flat=(10, 20), widths=(1, 2), tokens=3, burst=5, idle_s=0.1)


async def measure(place: Place, effort: Effort, only: tuple[str, ...]) -> AsyncIterator[Table]:
    """Measure the chosen parts one after another."""
    for part in PARTS:
        if part not in only:
            continue
        if part == "memory":
            yield await memory(place, effort.idle_s)
        elif part == "steps":
            for table in await steps(place, effort.rounds):
                yield table
            yield await flatness(place, effort.few, effort.flat)
        elif part == "rate":
            yield await rate(place, effort.rounds, effort.rate_s)
        elif part == "tokens":
            for table in await tokens(place, effort.rounds, effort.few, effort.widths, effort.tokens):
                yield table
        elif part == "burst":
            yield await burst(place, effort.few, effort.burst)
        else:
            yield await recovery(place, effort.few)


async def show(effort: Effort, only: tuple[str, ...] = PARTS) -> None:
    """Start everything, and print the tables."""
    async with started() as place:
        async for table in measure(place, effort, only):
            print(table.text(), flush=True)
