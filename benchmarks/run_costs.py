"""What runs cost: (b) a tool step, (c) whole runs, (e) a long run, and one that is seen for the first time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks.instant_model import Script
from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread, together
from benchmarks.system import PLAIN, TENANT, System
from contracts.wire import subjects
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run

_MS = 1e3
_SAMPLES = 40
"""Steps that a round measures at least."""
_WINDOW = 25


async def steps(system: System, rounds: int, longest: int) -> Table:
    """(b) One tool step: from the model's reply to the moment at which it is asked again."""
    table = Table(
        f"(b) tool step, sync {system.sync}",
        (
            "steps",
            "runs at once",
            "tool",
            "p50 ms",
            "p99 ms",
            "bare p50 ms",
            "ratio p50",
            "ratio p99",
            "p50 to one process",
        ),
        "Bare: two guarded appends, a call stored and delivered, a core request, a result stored and delivered,\n"
        "two acknowledgements, between as many processes as ours; last column: the same within one process.\n"
        "`plain` is a tool without the SDK; `once` may not be repeated, so its intent is stored\n"
        "and read back: two round trips more.",
    )
    for count, width, tool in (
        (1, 1, "instant"),
        (20, 1, "instant"),
        (20, 1, PLAIN),
        (20, 1, "once"),
        (longest, 1, "instant"),
        (20, 32, "instant"),
    ):
        times = max(1, _SAMPLES // (count * width))

        async def ours(count: int = count, width: int = width, tool: str = tool, times: int = times) -> list[float]:
            return await _often(times, width, lambda: system.steps(Script(steps=count, tool=tool)))

        async def bare(count: int = count, width: int = width, times: int = times) -> list[float]:
            return await _often(times, width, lambda: system.apart.steps(count))

        async def in_one(count: int = count, width: int = width, times: int = times) -> list[float]:
            return await _often(times, width, lambda: system.together.steps(count))

        found: dict[str, list[list[float]]] = await alternate(rounds, {"ours": ours, "bare": bare, "in one": in_one})
        p50, p99 = (
            {name: [quantile(values, share) * _MS for values in each] for name, each in found.items()}
            for share in (0.5, 0.99)
        )
        table.add(
            str(count),
            str(width),
            tool,
            spread(p50["ours"]),
            spread(p99["ours"]),
            spread(p50["bare"]),
            spread(ratios(p50["ours"], p50["bare"])),
            spread(ratios(p99["ours"], p99["bare"])),
            spread(ratios(p50["ours"], p50["in one"])),
        )
    return table


async def _often(times: int, width: int, work: Callable[[], Awaitable[list[float]]]) -> list[float]:
    found: list[float] = []
    for _ in range(times):
        found += await together(work() for _ in range(width))
    return found


async def runs_per_second(system: System, rounds: int, total: int) -> Table:
    """(c) Whole runs per second with a model that answers at once."""
    table = Table(
        f"(c) runs per second, sync {system.sync}",
        ("tool calls", "at once", "runs/s", "bare runs/s", "share of bare", "planner CPU µs per run"),
        "Bare: the same request, records and calls; without the index of runs, the deadline's timer, and any service.",
    )
    for calls, width in ((0, 32), (0, 128), (1, 32), (1, 128)):

        async def ours(calls: int = calls, width: int = width) -> float:
            return await _rate(total, width, lambda: system.ask(Script(steps=calls)))

        async def bare(calls: int = calls, width: int = width) -> float:
            return await _rate(total, width, lambda: system.apart.run(calls))

        cpu = system.cpu_s("planner-1")
        found = await alternate(rounds, {"ours": ours, "bare": bare})
        cpu = (system.cpu_s("planner-1") - cpu) / (rounds * total) * 1e6
        share = spread(ratios(found["ours"], found["bare"]))
        table.add(str(calls), str(width), spread(found["ours"], 0), spread(found["bare"], 0), share, f"{cpu:.0f}")
    return table


async def _rate(total: int, width: int, work: Callable[[], Awaitable[object]]) -> float:
    gate = asyncio.Semaphore(width)

    async def one() -> None:
        async with gate:
            await work()

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(total)))
    return total / (time.monotonic() - began)


async def growth(system: System, rounds: int, longest: int) -> Table:
    """(e) What a step costs as its run grows."""
    table = Table(
        f"(e) steps of a long run, sync {system.sync}",
        ("steps", "p50 ms around 10", f"around {longest // 5}", f"around {longest}", "last to first"),
        "One run alone; medians of windows of steps.",
    )
    windows: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        took = await system.steps(Script(steps=longest))
        parts = took[:_WINDOW], took[max(0, longest // 5 - _WINDOW) : longest // 5 + _WINDOW], took[-2 * _WINDOW :]
        for window, part in zip(windows, parts, strict=True):
            window.append(quantile(part, 0.5) * _MS)
    table.add(str(longest), *(spread(window) for window in windows), spread(ratios(windows[2], windows[0])))
    return table


async def recovery(system: System, rounds: int, longest: int) -> Table:
    """(e) What a planner pays that sees a run for the first time."""
    table = Table(
        f"(e) a run seen for the first time, sync {system.sync}",
        ("steps", "records", "read ms", "parse and fold ms", "together ms", "bare read ms", "read to bare"),
        "Bare: the same batched direct gets over a connection as nats-py makes it.",
    )
    ours = await system.bus.reader(subjects.RUNS)
    bus = Bus("bare", system.bus.settings)
    bus._nc = system.apart.client  # noqa: SLF001, `attach` would patch it
    bare = await bus.reader(subjects.RUNS)
    for count in (longest // 100, longest // 10, longest):
        subject = subjects.log(TENANT, await system.ask(Script(steps=count)))
        found: dict[str, list[float]] = {"read": [], "fold": [], "bare": []}
        records = 0
        for _ in range(2 * rounds):
            began = time.monotonic()
            await bare.read(subject)
            read = time.monotonic()
            stored = await ours.read(subject)
            parse = time.monotonic()
            records = _fold(stored)
            for name, seconds in (("bare", read - began), ("read", parse - read), ("fold", time.monotonic() - parse)):
                found[name].append(seconds * _MS)
        whole = [read + folded for read, folded in zip(found["read"], found["fold"], strict=True)]
        shown = [spread(each, 1) for each in (found["read"], found["fold"], whole, found["bare"])]
        table.add(str(count), str(records), *shown, spread(ratios(found["read"], found["bare"])))
    return table


def _fold(stored: list[tuple[int, bytes]]) -> int:
    """Do with a log what a planner does that has not seen it; the number of its records."""
    run = Run()
    for sequence, data in stored:
        record = Record.model_validate_json(data)
        fold(run, sequence, record.at, record.events)
    return len(stored)
