"""`make bench`: what a token, a step, a run and a listener cost, as ratios beside the raw NATS parts in the same run.

`--quick` measures fewer rounds, `--only abcdeghno` chooses questions, `--sync always|default|both` the durability of
(a) to (e). (h) is the whole product beside a bare loop, (n) a call over MCP, (o) the playground in Chromium; `python -m
benchmarks.product` measures parts of (h). Artifacts (f) need an S3 server and are measured by `python -m
benchmarks.artifacts`; `python -m benchmarks.beside_penguiflow` sets the planner beside the best-known one.
"""

import argparse
import asyncio
import os
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass

import uvloop

from benchmarks import mcp, playground, run_costs, streams
from benchmarks.instant_model import Script
from benchmarks.long_replies import long_replies
from benchmarks.product import parts as product
from benchmarks.ratio_tables import Table
from benchmarks.reading import reading, repeated
from benchmarks.system import System, started
from services.runtime.service import collect_garbage_rarely

_SYNC = {"always": ("always",), "default": ("2m",), "both": ("always", "2m")}
ALL = "abcdeghno"


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    `tokens` per run of (a), `runs` per round of (c), `clients` of (d) and tokens to each, steps, megabytes, seconds of
    search, `events` of the answer of (o).
    """

    rounds: int
    tokens: int
    runs: int
    clients: int
    tokens_to_each: int
    steps: int
    longest: int
    megabytes: float
    searched_s: float
    events: int


FULL = Effort(
    rounds=5,
    tokens=150,
    runs=400,
    clients=1000,
    tokens_to_each=12,
    steps=200,
    longest=1000,
    megabytes=0.5,
    searched_s=60,
    events=10_000,
)
QUICK = Effort(
    rounds=3,
    tokens=40,
    runs=60,
    clients=100,
    tokens_to_each=8,
    steps=60,
    longest=200,
    megabytes=0.25,
    searched_s=10,
    events=2_000,
)
SMALLEST = Effort(
    rounds=1,
    tokens=5,
    runs=10,
    clients=20,
    tokens_to_each=2,
    steps=5,
    longest=100,
    megabytes=0.01,
    searched_s=0.2,
    events=500,
)


async def measure(system: System, effort: Effort, only: str = ALL) -> AsyncIterator[Table]:
    """Answer the questions that need a system one after another."""
    await system.steps(Script(steps=20))  # Everything has been used once.
    if "a" in only:
        yield await streams.chunks(system, effort.rounds, effort.tokens)
    if "b" in only:
        yield await run_costs.steps(system, effort.rounds, effort.steps)
    if "c" in only:
        yield await run_costs.runs_per_second(system, effort.rounds, effort.runs)
    if "d" in only:
        yield await streams.fan_out(system, effort.clients, effort.tokens_to_each)
    if "e" in only:
        yield await run_costs.growth(system, (effort.rounds + 1) // 2, effort.longest)
        yield await run_costs.recovery(system, effort.rounds, effort.longest)


async def main(effort: Effort, only: str, syncs: tuple[str, ...], *, with_peers: bool) -> None:
    """Print a table per question and durability."""
    if "g" in only:
        print(reading(effort.rounds, effort.megabytes).text(), flush=True)
        print(repeated(effort.searched_s).text(), flush=True)
        print((await long_replies(effort.megabytes * 2, effort.searched_s)).text(), flush=True)
    if "h" in only:
        await product.show(product.QUICK if effort is QUICK else product.FULL, with_peers=with_peers)
    if "n" in only:
        print((await mcp.compared(effort.rounds, effort.runs)).text(), flush=True)
    if "o" in only and (missing := playground.missing()):
        print(f"(o) is left out: install {', '.join(missing)}.")
    elif "o" in only:
        print(playground.frames(effort.rounds, effort.events).text(), flush=True)
    for sync in syncs if set(only) - {"g", "h", "n", "o"} else ():
        async with started(sync) as system:
            async for table in measure(system, effort, only):
                print(table.text(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=ALL)
    parser.add_argument("--sync", choices=_SYNC, default="both")
    parser.add_argument("--peers", action="store_true", help="set the peers of PEERS_HOME beside the product in (h)")
    given = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load before {load}.")
    print("Medians over the rounds [lowest..highest]. Trust the ratios, not the milliseconds.")
    collect_garbage_rarely()  # As every service does.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(QUICK if given.quick else FULL, given.only, _SYNC[given.sync], with_peers=given.peers))
