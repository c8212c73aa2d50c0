"""`make bench`: what a step, a chunk, a run and a listener cost, as ratios beside the raw NATS parts in the same run.

`--quick` takes two minutes instead of ten, `--only abcde` chooses questions, `--sync always|default|both` the durability.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import uvloop

from benchmarks import cases
from benchmarks.figures import Table
from benchmarks.script import Script
from benchmarks.system import System, started

_SYNC = {"always": ["always"], "default": ["2m"], "both": ["always", "2m"]}


async def measure(only: str, syncs: list[str], *, quick: bool) -> None:
    """Print a table per question and durability."""
    rounds = 3 if quick else 5
    for sync in syncs:
        async with started(sync) as system:
            await system.steps(Script(steps=20))  # Everything has been used once.
            work: dict[str, Callable[[System], Awaitable[Table]]] = {
                "a": partial(cases.chunks, rounds=rounds),
                "b": partial(cases.steps, rounds=rounds),
                "c": partial(cases.runs_per_second, rounds=rounds, total=100 if quick else 400),
                "d": partial(cases.fan_out, clients=300 if quick else 1000),
                "e": partial(cases.recovery, rounds=rounds),
            }
            for name, case in work.items():
                if name in only:
                    print((await case(system)).text(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="abcde")
    parser.add_argument("--sync", choices=_SYNC, default="both")
    given = parser.parse_args()
    print(f"Python {sys.version.split()[0]}; medians over rounds [lowest..highest]; trust the ratios, not the milliseconds.")
    uvloop.run(measure(given.only, _SYNC[given.sync], quick=given.quick))
