"""(k) What conversations and approvals cost as they grow: the n-th run of a session, and runs that wait for a person.

Run: python -m benchmarks.conversations [--turns 200] [--rounds 10] [--paused 100,10000] [--sync always]

Real processes with a model over HTTP, as in (h). Turns: in each round the second run of a new session alternates with
the next run of a session that has `--turns` already; a ratio compares the same round. Paused: memory of all processes
with the first number of waiting runs and with the last, and the time from a decision to the end of its run beside that
of a run that is paused alone.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import orjson
import uvloop

from benchmarks.product import processes
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, ratios, spread
from contracts.wire.names import new_id
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.stack import Stack

_MS = 1e3
_TOOLS = Path(__file__).parent / "product" / "tools.py"
_READY_S, _WAIT_S = 60, 300
_AT_ONCE = 32
_LOOK_EVERY_S = 0.02
_SETTLING_S = 15.0
_DECISIONS = 40


class System:
    """One process of each service with users on NATS, and a client."""

    def __init__(self, nats: NatsServer, stack: Stack, http: aiohttp.ClientSession, model_url: str) -> None:
        self.pids = {nats.pid: "nats-server", **{stack.pid(name): name.rsplit("-", 1)[0] for name in stack.parts}}
        self.nats, self.stack, self.http, self.model_url = nats, stack, http, model_url

    async def is_ready(self) -> None:
        """Return once the tools are known."""
        async with asyncio.timeout(_READY_S):
            while True:
                if "guarded" in orjson.dumps(await self.get("/v1/tools")).decode():
                    return
                await asyncio.sleep(_LOOK_EVERY_S)

    async def turn(self, session_id: str) -> tuple[float, float]:
        """Run one turn; return the milliseconds from the request to `run_started`, and to the end."""
        body = {"query": Script(tokens=8).question(), "session_id": session_id}
        began, started = time.monotonic(), 0.0
        async with self.http.post(
            f"{self.stack.url}/v1/runs", json=body, headers={"Accept": "text/event-stream"}
        ) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.startswith(b"event: run_started"):
                    started = time.monotonic()
                elif line.startswith(b"event: done"):
                    return (started - began) * _MS, (time.monotonic() - began) * _MS
        raise RuntimeError("the run ended otherwise")

    async def pause(self) -> dict[str, Any]:
        """Start a run that waits for an approval; return its pause."""
        run = (await self.post("/v1/runs", {"query": Script(calls=1, tool="guarded").question()}))["run_id"]
        async with asyncio.timeout(_WAIT_S):
            while True:
                for found in (await self.get(f"/v1/runs/{run}"))["pauses"]:
                    return dict(found)
                await asyncio.sleep(_LOOK_EVERY_S)

    async def decide(self, pause: dict[str, Any]) -> float:
        """Approve; return the milliseconds from the decision to the end of the run."""
        url = f"{self.stack.url}/v1/runs/{pause['run_id']}"
        body = {"pause_id": pause["pause_id"], "token": pause["token"], "decision": "approve"}
        async with self.http.get(f"{url}/events") as events:
            began = time.monotonic()
            await self.post(f"/v1/runs/{pause['run_id']}/resume", body)
            async for line in events.content:
                if line.startswith(b"event: done"):
                    return (time.monotonic() - began) * _MS
        raise RuntimeError("the run ended otherwise")

    def memory_mb(self) -> dict[str, float]:
        """Of each process, PSS."""
        return processes.memory_mb(self.pids)

    async def get(self, path: str) -> Any:
        """Return what the gateway answers."""
        async with self.http.get(f"{self.stack.url}{path}") as reply:
            reply.raise_for_status()
            return await reply.json()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return what the gateway answers."""
        async with self.http.post(f"{self.stack.url}{path}", json=body) as reply:
            reply.raise_for_status()
            return await reply.json()


async def turns(system: System, count: int, rounds: int) -> Table:
    """The second run of a session beside one after many others."""
    table = Table(
        f"(k) a run of a session, after 1 and after {count} others",
        ("", "to run_started, ms", "to the end, ms"),
        f"{rounds} rounds; from the request of a client that follows the run.",
    )
    long_session, second, later = new_id(), list[tuple[float, float]](), list[tuple[float, float]]()
    for _ in range(count):
        await system.turn(long_session)
    for _ in range(rounds):
        session = new_id()
        await system.turn(session)
        second.append(await system.turn(session))
        later.append(await system.turn(long_session))
    columns = [list(zip(*taken, strict=True)) for taken in (second, later)]
    for name, column in zip(("the 2nd", f"after {count}"), columns, strict=True):
        table.add(name, *map(spread, column))
    table.add("ratio", *(spread(ratios(above, below)) for below, above in zip(*columns, strict=True)))
    return table


async def paused(system: System, counts: list[int]) -> tuple[Table, Table]:
    """Memory with waiting runs, and what a decision costs."""
    memory = Table("(k) runs that wait for a person: memory, MB (PSS)", ("process", *map(str, counts), "ratio"))
    costs = Table("(k) from a decision to the end of its run, ms", ("others that wait", f"{_DECISIONS} decisions"))
    alone = [await system.decide(await system.pause()) for _ in range(_DECISIONS)]
    costs.add("0", spread(alone))
    waiting: list[dict[str, Any]] = []
    sizes: list[dict[str, float]] = []
    for count in counts:
        while len(waiting) < count:
            some = min(_AT_ONCE, count - len(waiting))
            waiting += await asyncio.gather(*(system.pause() for _ in range(some)))
        await asyncio.sleep(_SETTLING_S)
        sizes.append(system.memory_mb())
        costs.add(str(count), spread([await system.decide(await system.pause()) for _ in range(_DECISIONS)]))
        costs.add(f"{count}, the oldest of them", spread([await system.decide(waiting.pop(0)) for _ in range(20)]))
    for name in [*sizes[0], "all"]:
        of = [sum(size.values()) if name == "all" else size[name] for size in sizes]
        memory.add(name, *(f"{value:.1f}" for value in of), f"{of[-1] / of[0]:.2f}")
    return memory, costs


@asynccontextmanager
async def started(sync: str, more: Mapping[str, str] | None = None) -> AsyncIterator[System]:
    """Start a system of one process each. `more`: further settings of all processes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="runwire-bench-")))
        port = free_port()
        model_url = f"http://127.0.0.1:{port}/v1"
        command = [sys.executable, "-m", "benchmarks.product.model_server", str(port)]
        stack.enter_context(processes.running(command, folder / "model.log", os.environ))
        nats = NatsServer(folder / "nats", sync=sync, identities=True)
        nats.start()
        stack.callback(nats.kill)
        env = {
            "RUNWIRE_LOG_LEVEL": "warning",
            "RUNWIRE_MODEL": "openai/scripted",
            "RUNWIRE_MODEL_API_BASE": model_url,
            "RUNWIRE_MODEL_API_KEY": "none",
            "RUNWIRE_MAX_OPEN_RUNS": "100000",
            "BENCHMARK_CALLS": str(folder / "calls"),
            **(more or {}),
        }
        running = Stack(nats.url, folder / "stack", env, 1, 1, 1, tools=_TOOLS, tool_copies=1, passwords=nats.passwords)
        await asyncio.to_thread(stack.enter_context, running)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20)
        )
        system = System(nats, running, http, model_url)
        await system.is_ready()
        yield system


async def main(count: int, rounds: int, waiting: list[int], sync: str) -> None:
    """Start the system and print the tables."""
    async with started(sync) as system:
        print((await turns(system, count, rounds)).text())
        for table in await paused(system, waiting):
            print(table.text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.conversations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--paused", default="100,10000")
    parser.add_argument("--sync", choices=("always", "default"), default="always")
    arguments = parser.parse_args()
    sync = {"always": "always", "default": "2m"}[arguments.sync]
    numbers = [int(number) for number in arguments.paused.split(",")]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(arguments.turns, arguments.rounds, numbers, sync))
