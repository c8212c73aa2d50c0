"""(j) What users and permissions on NATS cost: the same runs with the users of a deployment, and on a server without.

Run: python -m benchmarks.identities [--starts 3] [--rounds 8] [--calls 20] [--sync always]

Both systems are real processes with a model over HTTP, as in (h). Short runs alternate between the two, in turned order
every second time; eight of them on each side are a round, and a ratio compares the same round. Each start makes both
systems anew.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import uvloop

from benchmarks.product import processes
from benchmarks.product.client import Client
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.stack import Stack

USERS, OPEN = "users and accounts", "one open account"
_MS = 1e3
_TOOLS = Path(__file__).parent / "product" / "tools.py"
_READY_S = 60
_RUNS_PER_ROUND = 8
Round = dict[str, float]


@dataclass(frozen=True)
class Run:
    """What the steps of a run took, from one result to the next, and the CPU time of a step."""

    took_ms: list[float]
    cpu_ms: float
    nats_cpu_ms: float


class System:
    """One process of each service, and a client."""

    def __init__(self, nats: NatsServer, stack: Stack, http: aiohttp.ClientSession) -> None:
        self._pids = {nats.pid: "nats-server", **{stack.pid(name): name for name in stack.parts}}
        self._url = stack.url
        self._http = http
        self.client = Client(http, stack.url)

    async def is_ready(self) -> None:
        """Return once the tool is known."""
        async with asyncio.timeout(_READY_S):
            while True:
                async with self._http.get(f"{self._url}/v1/tools") as reply:
                    if "echo" in await reply.text():
                        return
                await asyncio.sleep(0.05)

    def run(self, calls: int) -> Callable[[], Awaitable[Run]]:
        """One run."""

        async def run() -> Run:
            before = processes.cpu_s(self._pids)
            received = await self.client.ask(Script(calls=calls))
            used = {name: (after - before[name]) / calls * _MS for name, after in processes.cpu_s(self._pids).items()}
            took = [(after - before) * _MS for before, after in pairwise(received.observed_at)]
            return Run(took, sum(used.values()), used["nats-server"])

        return run


def _round(runs: Sequence[Run]) -> Round:
    took = [step for run in runs for step in run.took_ms]
    cpu, of_nats = (
        sum(each) / len(runs) for each in zip(*((run.cpu_ms, run.nats_cpu_ms) for run in runs), strict=True)
    )
    return {"p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "CPU": cpu, "CPU of nats-server": of_nats}


async def _started(stack: AsyncExitStack, folder: Path, model: str, sync: str, *, identities: bool) -> System:
    nats = NatsServer(folder / "nats", sync=sync, identities=identities)
    nats.start()
    stack.callback(nats.kill)
    env = {
        "RUNWIRE_LOG_LEVEL": "warning",
        "RUNWIRE_MODEL": "openai/scripted",
        "RUNWIRE_MODEL_API_BASE": model,
        "RUNWIRE_MODEL_API_KEY": "none",
        "BENCHMARK_CALLS": str(folder / "calls"),
    }
    running = Stack(nats.url, folder / "stack", env, 1, 1, 1, tools=_TOOLS, tool_copies=1, passwords=nats.passwords)
    await asyncio.to_thread(stack.enter_context, running)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20))
    system = System(nats, running, http)
    await system.is_ready()
    await system.client.ask(Script(calls=3))
    return system


async def measured(rounds: int, calls: int, sync: str) -> dict[str, list[Round]]:
    """Start both systems and let them alternate."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="runwire-bench-")))
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.product.model_server", str(port)]
        stack.enter_context(processes.running(command, folder / "model.log", os.environ))
        model = f"http://127.0.0.1:{port}/v1"
        systems = {
            name: await _started(stack, folder / str(users), model, sync, identities=users)
            for name, users in ((USERS, True), (OPEN, False))
        }
        cases = {name: system.run(calls) for name, system in systems.items()}
        found = await alternate(rounds * _RUNS_PER_ROUND, cases)
    starts = range(0, rounds * _RUNS_PER_ROUND, _RUNS_PER_ROUND)
    return {name: [_round(runs[start : start + _RUNS_PER_ROUND]) for start in starts] for name, runs in found.items()}


async def compared(starts: int, rounds: int, calls: int, sync: str) -> Table:
    """Three rows for each start: both systems, and the ratio."""
    table = Table(
        f"(j) a step with users and permissions beside one without, sync {sync}",
        ("start", "", "a step, p50 ms", "p99 ms", "its CPU ms", "of nats-server"),
        f"{rounds} rounds of {_RUNS_PER_ROUND} runs of {calls} calls on each side; from one result to the next.",
    )
    for start in range(1, starts + 1):
        found = await measured(rounds, calls, sync)
        columns = {name: [[each[what] for each in of] for what in of[0]] for name, of in found.items()}
        for name, of in columns.items():
            table.add(str(start), name, *map(spread, of))
        both = zip(columns[USERS], columns[OPEN], strict=True)
        table.add(str(start), "ratio", *(spread(ratios(*each)) for each in both))
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.identities",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--sync", default="always")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}.")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(compared(given.starts, given.rounds, given.calls, given.sync)).text(), flush=True)
