"""Many runs: how many a second, how old their tokens are, and what many beginnings at once do to the first token."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks.product import processes
from benchmarks.product.place import Place, Side
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread

_MS = 1e3
_CLIENTS = 8
_GAP_MS = 20
_BEGINNINGS = 15
_NARROW = 20
Cost = dict[str, float]


async def rate(place: Place, rounds: int, for_s: float) -> Table:
    """Runs of one call by eight clients, each asking again once it has its answer."""
    found = await alternate(rounds, {name: _closed_loop(side, for_s) for name, side in place.sides().items()})
    table = Table(
        f"(h) runs of one call, {_CLIENTS} clients",
        ("", "product", "bare loop", "product / bare"),
        "The client works on the same machine, and so does the model server.",
    )
    for what in ("runs/s", "CPU ms a run"):
        ours, bare = ([run[what] for run in found[side]] for side in ("product", "bare"))
        table.add(what, spread(ours, 1), spread(bare, 1), spread(ratios(ours, bare)))
    for name in [name for name in (*processes.NAMES, "other") if name in found["product"][0]]:
        table.add(f"of it {name}", spread([run[name] for run in found["product"]]), "", "")
    return table


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
        return {"runs/s": count / took, "CPU ms a run": sum(each.values()), **each}

    return run


async def tokens(place: Place, rounds: int, few: int, widths: tuple[int, ...], count: int) -> list[Table]:
    """The first token of a run that is alone, and the age of every token with several runs at once.

    Wide cases take long, so only `few` rounds are made of them.
    """
    first = Table("(h) first token of a run that is alone", ("", "product ms", "bare loop ms", "product / bare"))
    found = await alternate(rounds, {name: _beginnings(side) for name, side in place.sides().items()})
    ours, bare = ([each * _MS for each in found[side]] for side in ("product", "bare"))
    first.add("from the request", spread(ours, 1), spread(bare, 1), spread(ratios(ours, bare)))
    ages = Table(
        "(h) age of a token when its client has it",
        ("runs", "product p50 ms", "p99", "bare p50 ms", "p99", "ratio p50", "CPU µs a token", "bare"),
        f"Every run gets {1000 // _GAP_MS} tokens a second; their beginnings are spread over one gap.",
    )
    for width in widths:
        repeats = rounds if width <= _NARROW else few
        streamed = await alternate(repeats, {name: _stream(side, width, count) for name, side in place.sides().items()})
        its = {what: [run[what] for run in streamed["product"]] for what in ("p50", "p99", "cpu")}
        theirs = {what: [run[what] for run in streamed["bare"]] for what in ("p50", "p99", "cpu")}
        ages.add(
            str(width),
            *(spread(side[what], 1) for side in (its, theirs) for what in ("p50", "p99")),
            spread(ratios(its["p50"], theirs["p50"]), 1),
            *(spread(side["cpu"], 0) for side in (its, theirs)),
        )
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


async def burst(place: Place, rounds: int, runs: int) -> Table:
    """Runs that begin in the same moment, and stream at 50 tokens/s once they have begun."""
    table = Table(
        f"(h) {runs} runs that begin at once: first token",
        ("", "product s", "bare loop s", "product / bare"),
        "From the request, over all runs; each answer has 25 tokens, one every 20 ms.",
    )
    found = await alternate(rounds, {name: _begin_at_once(side, runs) for name, side in place.sides().items()})
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        ours, bare = ([quantile(each, share) for each in found[side]] for side in ("product", "bare"))
        table.add(what, spread(ours), spread(bare), spread(ratios(ours, bare)))
    return table


def _begin_at_once(side: Side, runs: int) -> Callable[[], Awaitable[list[float]]]:
    async def run() -> list[float]:
        script = [Script(tokens=25, gap_ms=_GAP_MS) for _ in range(runs)]
        return [seen.first_token_s for seen in await asyncio.gather(*map(side.client.ask, script))]

    return run
