"""What a step costs: one call of the model and one call of a tool that both answer at once."""

from collections.abc import Awaitable, Callable

from benchmarks.product import processes
from benchmarks.product.script import Script
from benchmarks.product.side import Side
from benchmarks.product.testbed import BARE, PRODUCT, Testbed, by_process
from benchmarks.ratio_tables import Table, alternate, ratios, spread

_MS = 1e3
_AROUND = 9
"""Steps before and after one whose cost is taken: single steps say little."""
Cost = dict[str, float]


async def steps(testbed: Testbed, rounds: int, lengths: tuple[int, ...]) -> list[Table]:
    """Runs of so many calls beside the bare loop, and the CPU time of every process for a step."""
    cases = {(name, calls): _run(side, calls) for calls in lengths for name, side in testbed.sides.items()}
    found = await alternate(rounds, cases)
    table = Table(
        "(h) a run of tool steps",
        (
            "",
            *(f"calls: {calls}, ms" for calls in lengths),
            "a step, ms",
            "/ bare loop",
            "CPU of a step, ms",
            "/ bare loop",
        ),
        "From the request to its end, over HTTP. `a step` is the slope from the shortest run to the longest; "
        "CPU is that of all processes of a side.",
    )
    slopes = {
        name: _slopes(found[name, lengths[0]], found[name, lengths[-1]], lengths[-1] - lengths[0])
        for name in testbed.sides
    }
    for name, its in slopes.items():
        took = [spread([cost["took"] for cost in found[name, calls]], 1) for calls in lengths]
        cells = []
        for what in ("took", "all"):
            step, bare = ([cost[what] for cost in each] for each in (its, slopes[BARE]))
            cells += [spread(step), spread(ratios(step, bare), 1)]
        table.add(name, *took, *cells)
    return [table, by_process("(h) CPU time of one step", slopes[PRODUCT])]


def _run(side: Side, calls: int) -> Callable[[], Awaitable[Cost]]:
    async def run() -> Cost:
        meter = side.meter()
        took = (await side.client.ask(Script(calls=calls))).took_s
        used = {name: seconds * _MS for name, seconds in (await meter.used_s()).items()}
        return {"took": took * _MS, "all": sum(used.values()), **used}

    return run


def _slopes(short: list[Cost], long: list[Cost], more: int) -> list[Cost]:
    """Milliseconds of one step, round by round."""
    return [
        {what: (many[what] - few.get(what, 0.0)) / more for what in many} for few, many in zip(short, long, strict=True)
    ]


async def flatness(testbed: Testbed, rounds: int, at: tuple[int, ...]) -> Table:
    """What a step costs at the beginning of a run and later: the mean of the steps around each of `at`."""
    sides = testbed.streaming()
    found = await alternate(rounds, {name: _long_run(side, at) for name, side in sides.items()})
    table = Table(
        "(h) a step of a long run",
        ("", *(f"around step {step}" for step in at), "last / first"),
        "The model's reply included; a question grows with every step. CPU of all processes of a side.",
    )
    for what in ("ms", "CPU ms"):
        for side in sides:
            columns = [[run[f"{what} {step}"] for run in found[side]] for step in at]
            table.add(f"{side}, {what}", *(spread(each) for each in columns), spread(ratios(columns[-1], columns[0])))
    return table


def _long_run(side: Side, at: tuple[int, ...]) -> Callable[[], Awaitable[Cost]]:
    windows = {step: (step - _AROUND, step + _AROUND) for step in at}

    async def run() -> Cost:
        pids = side.pids()
        marks = {mark for window in windows.values() for mark in window}
        cpu: dict[int, float] = {}

        def on_step(count: int) -> None:
            if count in marks:
                cpu[count] = sum(processes.cpu_s(pids).values())

        observed_at = (await side.client.ask(Script(calls=at[-1] + _AROUND), on_step)).observed_at
        found = {}
        for step, (first, last) in windows.items():
            found[f"ms {step}"] = (observed_at[last - 1] - observed_at[first - 1]) / (last - first) * _MS
            found[f"CPU ms {step}"] = (cpu[last] - cpu[first]) / (last - first) * _MS
        return found

    return run
