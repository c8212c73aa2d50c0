"""A storm: a workload, while processes are killed, frozen, restarted and disconnected at random; then it is judged.

Blows fall on processes (SIGKILL; SIGTERM as in a rolling restart; SIGSTOP past the acknowledgement time, then SIGCONT)
and on nats-server (SIGKILL, then down for a moment; SIGSTOP, so that answers come too late). What was struck comes
back. All choices come from one seed; the order in which processes get their turn does not.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from services.messaging.connection import Bus
from tests.system import evidence
from tests.system.client import Client
from tests.system.summary import summary
from tests.system.system import System
from tests.system.traces import Rule, judge

ACK_WAIT_S = 2.0
AFTERMATH_S = 3.5
"""After the end, in which those who were frozen wake up and do their worst."""
DRAIN_LIMIT_S = 30
_SESSIONS_AT_ONCE = 6
_STRUCK_WHILE_STARTING = 0.1
_FREEZES_OF_SERVER = 0.4
_PAUSE_S = (0.2, 0.9)
"""Between two blows."""


@dataclass
class Storm:
    """How much is to happen, what was done, and what became of it. Runs and blows go on until both are reached."""

    system: System
    runs: int
    blows: int
    server_kills: int
    seed: int
    found: Any
    """The evidence; `gather` completes it."""
    struck: Counter[str] = field(default_factory=Counter)
    history: list[tuple[float, str, str]] = field(default_factory=list)
    """When (Unix s), what, to whom: for finding the cause of a broken promise."""
    down: set[str] = field(default_factory=set)
    """Processes that are being struck, until they run again."""
    rng: random.Random = field(init=False)
    client: Client = field(init=False)
    rules: ClassVar[Mapping[str, Rule]]
    """By which it is judged."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    async def work(self) -> None:
        """Do what the storm is about, until it is over."""
        raise NotImplementedError

    async def meanwhile(self) -> None:
        """What goes on beside the work, until that is done."""

    async def calm(self) -> None:
        """Wait for what is still to come, once everything runs again."""

    async def gather(self, bus: Bus) -> None:
        """Read what is left, once the queues are empty."""
        await evidence.gather(bus, self.found, self.system.ledger)

    def counts(self) -> Counter[str]:
        """What people did, and how often."""
        return Counter()

    def note(self, blow: str, name: str) -> None:
        """Count a blow."""
        self.struck[f"{blow} {name.rsplit('-', 1)[0]}"] += 1
        pid = self.system.stack.pid(name) if name in self.system.stack.parts else ""
        self.history.append((time.time(), blow, f"{name} {pid}"))


@dataclass
class SessionStorm(Storm):
    """One with sessions, a few of which go on at the same time."""

    sessions: int = 1

    async def work(self) -> None:
        """Hold the sessions, each with its share of the runs."""
        places = asyncio.Semaphore(_SESSIONS_AT_ONCE)

        async def hold(session_id: str) -> None:
            async with places:
                await self.talk(session_id, self.runs // self.sessions, random.Random(session_id))

        await asyncio.gather(
            *(hold(f"{type(self).__name__.lower()}-{self.seed}-{nth}") for nth in range(self.sessions))
        )

    async def talk(self, session_id: str, requests: int, rng: random.Random) -> None:
        """Send the requests of a session, and wait until it has ended."""
        raise NotImplementedError


async def survive(storm: Storm) -> None:
    """Hold a storm, judge it, and fail with its report where a promise was broken."""
    stack = storm.system.stack
    with stack.showing_logs():
        await _hold(storm)
        complaints = await _judged(storm)
        logs = "".join(stack.log_of(name).read_text(encoding="utf-8") for name in stack.names("planner"))
        found, false = (logs.count(event) for event in ("killed_planner_found", "planner_was_not_dead"))
        counts = storm.struck + storm.counts() + Counter({"killed planners found": found, "false deaths": false})
        report = f"seed {storm.seed}\n{summary(counts, storm.found, complaints, storm.history)}"
        sys.stdout.write(report + "\n")
        assert not complaints, report
        assert not false, report


async def _hold(storm: Storm) -> None:
    """Afterwards everything runs again and what was frozen has had its time."""
    stack = storm.system.stack
    async with Client(*(stack.url_of(name) for name in stack.names("gateway"))) as storm.client:
        async with asyncio.TaskGroup() as tasks:
            raging = tasks.create_task(_rage(storm))
            meanwhile = [tasks.create_task(each) for each in (_supervise(storm), storm.meanwhile())]
            await storm.work()
            await raging
            for task in meanwhile:
                task.cancel()
        await asyncio.to_thread(stack.mend)
        await storm.calm()
    await asyncio.sleep(AFTERMATH_S)


async def _judged(storm: Storm) -> dict[str, list[str]]:
    async with evidence.connected(storm.system.nats) as bus:
        with contextlib.suppress(AssertionError):  # `leaves_nothing` says what is left.
            await evidence.drained(bus, DRAIN_LIMIT_S)
        await storm.gather(bus)
        storm.found.dead_letters = [
            f"{subject}: {reason}: {body[:200]!r}" for subject, reason, body in await evidence.dead(bus)
        ]
    return judge(storm.found, storm.rules)


async def _rage(storm: Storm) -> None:
    """Let the blows fall, and see to it that what was struck comes back."""
    rng = storm.rng
    recovering: set[asyncio.Task[None]] = set()
    server_at = sorted(rng.sample(range(1, storm.blows), storm.server_kills)) if storm.server_kills else []
    while storm.struck.total() < storm.blows:
        await asyncio.sleep(rng.uniform(*_PAUSE_S))
        if server_at and storm.struck.total() >= server_at[0]:
            server_at.pop(0)
            await _strike_server(storm)
            continue
        task = asyncio.create_task(_strike(storm, rng.choice(list(storm.system.stack.parts))))
        recovering.add(task)
    await asyncio.gather(*recovering)


async def _strike_server(storm: Storm) -> None:
    nats, rng = storm.system.nats, storm.rng
    if rng.random() < _FREEZES_OF_SERVER:
        # Longer than anybody waits for one answer, so that writes are repeated whose first form is on its way.
        storm.note("freeze", "nats")
        nats.freeze()
        await asyncio.sleep(rng.uniform(2.1, 3.5))
        storm.history.append((time.time(), "thaw", "nats"))
        nats.thaw()
        return
    storm.note("kill", "nats")
    nats.kill()
    await asyncio.sleep(rng.uniform(0.05, 1.5))
    await asyncio.to_thread(nats.start)


async def _strike(storm: Storm, name: str) -> None:
    if name in storm.down:
        return
    storm.down.add(name)
    try:
        # Who is struck while starting has done nothing yet; with too much of that nobody ever does, since a start takes
        # seconds.
        if await asyncio.to_thread(storm.system.stack.is_ready, name) or storm.rng.random() < _STRUCK_WHILE_STARTING:
            await _strike_down(storm, name)
    finally:
        storm.down.remove(name)


async def _strike_down(storm: Storm, name: str) -> None:
    stack, rng = storm.system.stack, storm.rng
    kind = rng.random()
    if kind < 0.35:
        storm.note("freeze", name)
        stack.freeze(name)
        await asyncio.sleep(ACK_WAIT_S * rng.uniform(1.3, 2.5))
        storm.history.append((time.time(), "thaw", f"{name} {stack.pid(name)}"))
        stack.thaw(name)
        return
    if kind < 0.85:
        storm.note("kill", name)
        stack.kill(name)
    else:
        storm.note("terminate", name)
        await asyncio.to_thread(stack.terminate, name)
    await asyncio.sleep(rng.uniform(0.05, 0.6))
    stack.spawn(name)
    storm.history.append((time.time(), "spawn", f"{name} {stack.pid(name)}"))


async def _supervise(storm: Storm) -> None:
    """Start again what ended by itself, for ever; that it did is a complaint."""
    stack = storm.system.stack
    while True:
        for name, part in stack.parts.items():
            if not part.alive and name not in storm.down:
                storm.found.crashed.append(f"{name}: {stack.tail_of(name)[-2000:]}")
                stack.spawn(name)
        await asyncio.sleep(0.2)
