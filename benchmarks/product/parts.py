"""The parts of (h), and how much each of them measures."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from benchmarks.product.idle import growth, memory
from benchmarks.product.load import burst, rate, tokens
from benchmarks.product.peers import installed
from benchmarks.product.recovery import recovery
from benchmarks.product.steps import flatness, steps
from benchmarks.product.testbed import Testbed, started
from benchmarks.ratio_tables import Table

PARTS = ("memory", "steps", "rate", "tokens", "burst", "recovery", "growth")
"""In the order in which they are measured: memory first, while hardly anything has been done, and growth last."""


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    `few` are the rounds of what takes long: long runs, bursts, kills, more than 20 streams. `lengths` are the calls of
    the runs that are compared, `flat` the steps of a long run at which its cost is taken, `widths` the runs that stream
    at once, `tokens` the length of their answers.
    """

    rounds: int
    few: int
    rate_s: float
    lengths: tuple[int, ...]
    flat: tuple[int, ...]
    widths: tuple[int, ...]
    tokens: int
    burst: int
    idle_s: float


QUICK = Effort(
    rounds=3, few=1, rate_s=2, lengths=(1, 10, 50), flat=(10, 200), widths=(1, 20), tokens=50, burst=300, idle_s=3
)
FULL = Effort(
    rounds=5, few=3, rate_s=4, lengths=(1, 10, 50), flat=(10, 200), widths=(1, 20), tokens=100, burst=300, idle_s=5
)
LONG = replace(FULL, lengths=(1, 10, 50, 200), flat=(10, 200, 1000), widths=(1, 20, 100, 300))
SMALLEST = Effort(
    rounds=1, few=1, rate_s=0.2, lengths=(1, 10), flat=(10, 20), widths=(1, 2), tokens=3, burst=5, idle_s=0.1
)


async def measure(testbed: Testbed, effort: Effort, only: tuple[str, ...]) -> AsyncIterator[Table]:
    """Measure the chosen parts one after another."""
    for part in PARTS:
        for table in await _measured(part, testbed, effort) if part in only else ():
            yield table


async def _measured(part: str, testbed: Testbed, effort: Effort) -> list[Table]:
    match part:
        case "memory":
            return [await memory(testbed, effort.idle_s)]
        case "steps":
            tables = await steps(testbed, effort.rounds, effort.lengths)
            return [*tables, await flatness(testbed, effort.few, effort.flat)]
        case "rate":
            return await rate(testbed, effort.rounds, effort.rate_s)
        case "tokens":
            return await tokens(testbed, effort.rounds, effort.few, effort.widths, effort.tokens)
        case "burst":
            return [await burst(testbed, effort.few, effort.burst)]
        case "recovery":
            return [await recovery(testbed, effort.few)]
        case _:
            return [await growth(testbed, 3 * effort.few * effort.burst)]


async def show(
    effort: Effort, only: tuple[str, ...] = PARTS, up_options: tuple[str, ...] = (), *, with_peers: bool = False
) -> None:
    """Start everything, with the peers of PEERS_HOME if wanted, and print the tables."""
    async with started(installed() if with_peers else {}, up_options) as testbed:
        async for table in measure(testbed, effort, only):
            print(table.text(), flush=True)
