"""(l) What background tasks cost: a session with 1,000 open ones, and a group of three subagents with its report.

Run: python -m benchmarks.tasks [--children 1000] [--rounds 10] [--sync always]

Real processes with a model over HTTP, as in (h). Children: jobs that wait for a person, in one session, beside a
session with 10 of them: memory of all processes before and after, and the time in which a planner without a cache
loads each session. Group: one run that spawns three subagents, to the end of its report, beside four plain runs of a
session, one after another: wall time, and messages stored by the server. A ratio compares the same round.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from benchmarks.conversations import System, started
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, alternate, ratios, spread
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.planner.logs.session_log import SessionAddress, SessionLogs
from tests.system import evidence

_MS = 1e3
_FEW = 10
_A_RUN = 50
"""Tasks that one run spawns."""
_PLAIN_RUNS, _SUBAGENTS = 4, 3
_WAIT_S, _LOOK_EVERY_S, _SETTLING_S = 300, 0.01, 10.0
_AGENTS = """
[default.tasks]
spawn_requires_confirmation = false
max_open = 1000
max_per_run = 1000
"""


async def children(system: System, bus: Bus, count: int, rounds: int) -> tuple[Table, Table]:
    """Memory with many open tasks of one session, and what it takes to load that session."""
    memory = Table(f"(l) {count} open tasks of one session: memory, MB (PSS)", ("process", "before", "after", "ratio"))
    few, many = new_id(), new_id()
    await _spawn(system, few, _FEW)
    await asyncio.sleep(_SETTLING_S)
    before = system.memory_mb()
    spawned = await _spawn(system, many, count)
    await asyncio.sleep(_SETTLING_S)
    after = system.memory_mb()
    for name in [*before, "all"]:
        was, has = (sum(size.values()) if name == "all" else size[name] for size in (before, after))
        memory.add(name, f"{was:.1f}", f"{has:.1f}", f"{has / was:.2f}")
    note = f"A spawn took {spawned[0]:.0f} ms in the first run of {_A_RUN}, and {spawned[-1]:.0f} ms in the last one."
    loads = Table("(l) load a session without a cache, ms", ("open tasks", "ms"), note)
    found = await alternate(rounds, {_FEW: lambda: _load(bus, few, _FEW), count: lambda: _load(bus, many, count)})
    for size, taken in found.items():
        loads.add(str(size), spread(taken))
    loads.add("ratio", spread(ratios(found[count], found[_FEW])))
    return memory, loads


async def _spawn(system: System, session_id: str, count: int) -> list[float]:
    """Spawn jobs that wait for a person, fifty a run; return the milliseconds of a spawn in each run."""
    taken = []
    for at in range(0, count, _A_RUN):
        calls, began = min(_A_RUN, count - at), time.monotonic()
        await _run(system, Script(calls=calls, tool="waiting_task"), session_id, max_steps=_A_RUN + 2)
        taken.append((time.monotonic() - began) * _MS / calls)
    tasks = await system.get(f"/v1/tasks?session_id={session_id}&status=running")
    if len(tasks["tasks"]) != count:
        raise RuntimeError(f"{len(tasks['tasks'])} tasks are open, not {count}")
    return taken


async def _load(bus: Bus, session_id: str, count: int) -> float:
    """Return the milliseconds in which a session is read and folded."""
    logs = SessionLogs(bus)
    began = time.monotonic()
    session = await logs.load(SessionAddress.of("default", session_id), from_leader=True)
    taken = (time.monotonic() - began) * _MS
    if len(session.background.open_tasks()) != count:
        raise RuntimeError(f"the session has {len(session.background.open_tasks())} open tasks, not {count}")
    return taken


async def group(system: System, bus: Bus, rounds: int) -> Table:
    """A run with a group and its report, beside plain runs."""
    table = Table(
        f"(l) a run that spawns {_SUBAGENTS} subagents, with their report, beside {_PLAIN_RUNS} plain runs",
        ("", "to the end, ms", "messages stored"),
        f"{rounds} rounds; the plain runs are of one session, one after another.",
    )
    found = await alternate(
        rounds,
        {
            "plain runs": lambda: _measured(bus, lambda: _plain(system)),
            "a group": lambda: _measured(bus, lambda: _with_group(system)),
        },
    )
    columns = {name: list(zip(*taken, strict=True)) for name, taken in found.items()}
    for name, (times, stored) in columns.items():
        table.add(name, spread(times), spread(stored, 0))
    pairs = zip(columns["a group"], columns["plain runs"], strict=True)
    table.add("ratio", *(spread(ratios(above, below)) for above, below in pairs))
    return table


async def _measured(bus: Bus, act: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Return the milliseconds that something took, and how many messages the server stored."""
    stored, began = await _stored(bus), time.monotonic()
    await act()
    taken = (time.monotonic() - began) * _MS
    await asyncio.sleep(1)  # The index and the acknowledgements come after the end.
    return taken, await _stored(bus) - stored


async def _stored(bus: Bus) -> float:
    """Messages that all streams have ever stored."""
    streams = (await bus.api("STREAM.LIST", {}))["streams"]
    return float(sum(stream["state"]["last_seq"] for stream in streams))


async def _plain(system: System) -> None:
    session_id = new_id()
    for _ in range(_PLAIN_RUNS):
        await _run(system, Script(tokens=8), session_id)


async def _with_group(system: System) -> None:
    session_id = new_id()
    await _run(system, Script(calls=_SUBAGENTS, tool="task", tokens=8), session_id)
    async with asyncio.timeout(_WAIT_S):
        while True:
            groups = (await system.get(f"/v1/groups?session_id={session_id}"))["groups"]
            report = next((each["report_id"] for each in groups if each["report_id"]), None)
            if report is not None and await _has_ended(system, report):
                return
            await asyncio.sleep(_LOOK_EVERY_S)


async def _has_ended(system: System, run: str) -> bool:
    async with system.http.get(f"{system.stack.url}/v1/runs/{run}") as reply:
        return reply.status == 200 and (await reply.json())["ended_at"] is not None


async def _run(system: System, script: Script, session_id: str, **limits: int) -> None:
    """Run to the end."""
    body = {"query": script.question(), "session_id": session_id, "limits": limits}
    headers = {"Accept": "text/event-stream"}
    async with system.http.post(f"{system.stack.url}/v1/runs", json=body, headers=headers) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if line.startswith(b"event: done"):
                return
    raise RuntimeError("the run ended otherwise")


async def main(count: int, rounds: int, sync: str) -> None:
    """Start the system and print the tables."""
    with TemporaryDirectory(prefix="runwire-bench-agents-") as folder:
        agents = Path(folder) / "agents.toml"
        agents.write_text(_AGENTS)
        async with (
            started(sync, {"RUNWIRE_AGENTS_FILE": str(agents)}) as system,
            evidence.connected(system.nats) as bus,
        ):
            print((await group(system, bus, rounds)).text())
            for table in await children(system, bus, count, rounds):
                print(table.text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--children", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sync", choices=("always", "default"), default="always")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(arguments.children, arguments.rounds, {"always": "always", "default": "2m"}[arguments.sync]))
