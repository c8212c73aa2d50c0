"""Many runs: how many a second, how old their tokens are, and what many beginnings at once do to the first token."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks.product.script import Script
from benchmarks.product.side import Side
from benchmarks.product.testbed import BARE, PRODUCT, Testbed, by_process
from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread

_MS = 1e3
_CLIENTS = 8
_GAP_MS = 20
_BEGINNINGS = 15
_NARROW = 20
Cost = dict[str, float]


async def rate(testbed: Testbed, rounds: int, for_s: float) -> list[Table]:
    """Runs of one call by eight clients, each asking again once it has its answer."""
    found = await alternate(rounds, {name: _closed_loop(side, for_s) for name, side in testbed.sides.items()})
    table = Table(
        f"(h) runs of one call, {_CLIENTS} clients",
        ("", "runs/s", "/ bare loop", "CPU ms a run", "/ bare loop"),
        "The client works on the same machine, and so does the model server.",
    )
    for side, costs in found.items():
        cells = []
        for what in ("runs/s", "all"):
            its, bare = ([cost[what] for cost in each] for each in (costs, found[BARE]))
            cells += [spread(its, 1), spread(ratios(its, bare))]
        table.add(side, *cells)
    return [table, by_process("(h) CPU time of a run of one call", found[PRODUCT])]


def _closed_loop(side: Side, for_s: float) -> Callable[[], Awaitable[Cost]]:
    async def run() -> Cost:
        meter, count, began = side.meter(), 0, time.monotonic()

        async def one() -> None:
            nonlocal count
            while time.monotonic() < began + for_s:
                await side.client.ask(Script(calls=1))
                count += 1

        await asyncio.gather(*(one() for _ in range(_CLIENTS)))
        took, used = time.monotonic() - began, await meter.used_s()
        each = {name: seconds / count * _MS for name, seconds in used.items()}
        return {"runs/s": count / took, "all": sum(each.values()), **each}

    return run


async def tokens(testbed: Testbed, rounds: int, few: int, widths: tuple[int, ...], count: int) -> list[Table]:
    """The first token of a run that is alone, and the age of every token with several runs at once.

    Wide cases take long, so only `few` rounds are made of them.
    """
    sides = testbed.streaming()
    first = Table("(h) first token of a run that is alone", ("", "from the request, ms", "/ bare loop"))
    found = await alternate(rounds, {name: _beginnings(side) for name, side in sides.items()})
    for name, each in found.items():
        first.add(name, spread([value * _MS for value in each], 1), spread(ratios(each, found[BARE])))
    ages = Table(
        "(h) age of a token when its client has it",
        ("runs", "", "p50 ms", "p99 ms", "p50 / bare loop", "CPU µs a token"),
        f"Every run gets {1000 // _GAP_MS} tokens a second; their beginnings are spread over one gap.",
    )
    for width in widths:
        repeats = rounds if width <= _NARROW else few
        streamed = await alternate(repeats, {name: _stream(side, width, count) for name, side in sides.items()})
        bare = [cost["p50"] for cost in streamed[BARE]]
        for name, costs in streamed.items():
            p50, p99, cpu = ([cost[what] for cost in costs] for what in ("p50", "p99", "cpu"))
            ages.add(str(width), name, spread(p50, 1), spread(p99, 1), spread(ratios(p50, bare), 1), spread(cpu, 0))
    return [first, ages]


def _beginnings(side: Side) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        took = []
        for _ in range(_BEGINNINGS):
            took.append((await side.client.ask(Script())).first_token_s)
            await asyncio.sleep(0.05)
        return quantile(took, 0.5)

    return run


def _stream(side: Side, width: int, count: int) -> Callable[[], Awaitable[Cost]]:
    async def run() -> Cost:
        meter = side.meter()

        async def one(number: int) -> list[float]:
            await asyncio.sleep(number * _GAP_MS / 1000 / width)
            return (await side.client.ask(Script(tokens=count, gap_ms=_GAP_MS))).ages_s

        ages = [age for each in await asyncio.gather(*map(one, range(width))) for age in each]
        used = sum((await meter.used_s()).values())
        p50, p99 = (quantile(ages, share) * _MS for share in (0.5, 0.99))
        return {"p50": p50, "p99": p99, "cpu": used / len(ages) * 1e6}

    return run


async def burst(testbed: Testbed, rounds: int, runs: int) -> Table:
    """Runs that begin in the same moment, and stream at 50 tokens/s once they have begun."""
    table = Table(
        f"(h) {runs} runs that begin at once: first token",
        ("", "p50 s", "/ bare loop", "p99 s", "/ bare loop"),
        "From the request, over all runs; each answer has 25 tokens, one every 20 ms.",
    )
    sides = testbed.streaming()
    found = await alternate(rounds, {name: _begin_at_once(side, runs) for name, side in sides.items()})
    for name, each in found.items():
        cells = []
        for share in (0.5, 0.99):
            its, bare = ([quantile(first, share) for first in side] for side in (each, found[BARE]))
            cells += [spread(its), spread(ratios(its, bare))]
        table.add(name, *cells)
    return table


def _begin_at_once(side: Side, runs: int) -> Callable[[], Awaitable[list[float]]]:
    async def run() -> list[float]:
        script = [Script(tokens=25, gap_ms=_GAP_MS) for _ in range(runs)]
        return [seen.first_token_s for seen in await asyncio.gather(*map(side.client.ask, script))]

    return run
