"""What a kill costs: one process gets SIGKILL in the middle of a run, `runwire up` starts it again.

The run has ten calls of 200 ms; the kill comes when the sixth has begun. The tool's own file tells which calls began,
and when: the time until the next new call, and whether one was repeated or left out.
"""

import asyncio
import os
import signal
import time

from benchmarks.product.script import Script
from benchmarks.product.testbed import PRODUCT, Testbed
from benchmarks.ratio_tables import Table, spread
from tests.support.waiting import wait_until

VICTIMS = ("planner", "tool_runner", "tool", "nats-server")
_CALLS, _CALL_MS, _KILLED_AT = 10, 200, 6
_INTO_CALL_S = 0.1
_WAIT_S = 90
_OPEN = {"", "queued", "running", "waiting", "paused"}


async def recovery(testbed: Testbed, rounds: int) -> Table:
    """One row a process."""
    table = Table(
        "(h) a process is killed during a run of ten calls",
        ("killed", "next new call after s", "run ended", "calls repeated", "calls never begun"),
        "Undisturbed the next call begins after 0.1 s, when the one in flight has ended. Sums over the rounds.",
    )
    found: dict[str, list[tuple[float, str, int, int]]] = {victim: [] for victim in VICTIMS}
    for _ in range(rounds):
        for victim in VICTIMS:
            found[victim].append(await _killed(testbed, victim))
    for victim, each in found.items():
        after, ends, repeated, missing = zip(*each, strict=True)
        table.add(victim, spread(after), ", ".join(sorted(set(ends))), str(sum(repeated)), str(sum(missing)))
    return table


async def _killed(testbed: Testbed, victim: str) -> tuple[float, str, int, int]:
    """Seconds until the next new call, how the run ended, calls that began twice, and calls that never began."""
    script, client = Script(calls=_CALLS, call_ms=_CALL_MS), testbed.gateway
    pid = next(pid for pid, name in testbed.sides[PRODUCT].pids().items() if name == victim)
    address = await client.start(script)
    await wait_until(lambda: len(_begun(testbed, script)) >= _KILLED_AT, timeout=_WAIT_S, what="the sixth call began")
    await asyncio.sleep(_INTO_CALL_S)
    known = {number for number, _ in _begun(testbed, script)}
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()

    def new_calls() -> list[float]:
        return [at for number, at in _begun(testbed, script) if number not in known]

    async def end() -> str:
        status = await client.status(address)
        return "" if status in _OPEN else status

    after = await wait_until(new_calls, timeout=_WAIT_S, what=f"a call began after {victim} was killed")
    ended = await wait_until(end, timeout=_WAIT_S, what="the run ended")
    await wait_until(
        lambda: victim in testbed.sides[PRODUCT].pids().values(), timeout=_WAIT_S, what=f"{victim} was back"
    )
    await client.ask(Script(calls=1))  # The next kill finds everything working.
    begun = [number for number, _ in _begun(testbed, script)]
    return after[0] - killed, ended, len(begun) - len(set(begun)), _CALLS - len(set(begun))


def _begun(testbed: Testbed, script: Script) -> list[tuple[int, float]]:
    """The calls of a run that have begun: number, and moment in seconds."""
    lines = [line.split() for line in testbed.calls.read_text(encoding="utf-8").splitlines()]
    return [(int(line[1]), int(line[2]) / 1e9) for line in lines if line[0] == script.key]
