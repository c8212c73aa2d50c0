"""What a step costs: one call of the model and one call of a tool that both answer at once."""

from collections.abc import Awaitable, Callable

from benchmarks.product import processes
from benchmarks.product.place import Place, Side
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, alternate, ratios, spread

_MS = 1e3
LENGTHS = (1, 10, 50)
_AROUND = 9
"""Steps before and after one whose cost is taken: single steps say little."""
Cost = dict[str, float]


async def steps(place: Place, rounds: int) -> list[Table]:
    """Runs of 1, 10 and 50 calls beside the bare loop, and the CPU time of every process for a step."""
    cases = {f"{name} {calls}": _run(side, calls) for calls in LENGTHS for name, side in place.sides().items()}
    found = await alternate(rounds, cases)
    table = Table(
        "(h) a run of tool steps beside a bare loop",
        ("calls", "product ms", "bare loop ms", "product / bare"),
        "From the request to `done`, over HTTP and SSE. `a step` is the slope from the shortest run to the longest.",
    )
    took = {name: [cost["took"] * _MS for cost in costs] for name, costs in found.items()}
    for calls in LENGTHS:
        ours, bare = took[f"product {calls}"], took[f"bare {calls}"]
        table.add(str(calls), spread(ours, 1), spread(bare, 1), spread(ratios(ours, bare), 1))
    slopes = {name: _slopes(found, name, "took") for name in place.sides()}
    table.add("a step", *(spread(each) for each in slopes.values()), spread(ratios(*slopes.values()), 1))
    return [table, _by_process(found)]


def _run(side: Side, calls: int) -> Callable[[], Awaitable[Cost]]:
    async def run() -> Cost:
        meter = side.meter()
        took = (await side.client.ask(Script(calls=calls))).took_s
        used = await meter.used_s()
        return {"took": took, "all": sum(used.values()), **used}

    return run


def _slopes(found: dict[str, list[Cost]], side: str, what: str) -> list[float]:
    """Milliseconds of one step, round by round."""
    short, long = LENGTHS[0], LENGTHS[-1]
    pairs = zip(found[f"{side} {short}"], found[f"{side} {long}"], strict=True)
    return [(many.get(what, 0.0) - few.get(what, 0.0)) / (long - short) * _MS for few, many in pairs]


def _by_process(found: dict[str, list[Cost]]) -> Table:
    table = Table(
        "(h) CPU time of one step, by process",
        ("process", "ms"),
        "The slope from the shortest run to the longest; model server and client do not count.",
    )
    every, bare = _slopes(found, "product", "all"), _slopes(found, "bare", "all")
    table.add("all of the product", spread(every))
    for name in [name for name in (*processes.NAMES, "other") if name in found[f"product {LENGTHS[0]}"][0]]:
        table.add(name, spread(_slopes(found, "product", name)))
    table.add("bare loop", spread(bare))
    table.add("product / bare loop", spread(ratios(every, bare), 1))
    return table


async def flatness(place: Place, rounds: int, at: tuple[int, ...]) -> Table:
    """What a step costs at the beginning of a run and later: the mean of the steps around each of `at`."""
    found = await alternate(rounds, {name: _long_run(side, at) for name, side in place.sides().items()})
    table = Table(
        "(h) a step of a long run",
        ("", *(f"around step {step}" for step in at), "last / first"),
        "The model's reply included; a question grows with every step. CPU of all processes of a side.",
    )
    for what in ("ms", "CPU ms"):
        for side in place.sides():
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
