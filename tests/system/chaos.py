"""Runs while processes are killed, frozen, restarted and disconnected at random; then every promise is checked.

Blows fall on processes (SIGKILL; SIGTERM as in a rolling restart; SIGSTOP past the acknowledgement time, then SIGCONT)
and on nats-server (SIGKILL, then down for a moment; SIGSTOP, so that answers come too late). What was struck comes
back. Clients drop their connections all the time, and every eighth run is cancelled by its client. Of five runs two
have the strategy `planned`. All choices come from one seed; the order in which processes get their turn does not.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from services.messaging.errors import BusError
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.checker import judge
from tests.system.client import Client
from tests.system.model import WRITES, Plan
from tests.system.system import System
from tests.system.traces import Evidence, OpenRun, RunEvidence

ACK_WAIT_S = 2.0
IDEMPOTENT = {"often": True, "once": False, "refuse": False}
#: Seconds for one run, whatever happens to it.
RUN_LIMIT = 60
#: Seconds after the end in which those who were frozen wake up and do their worst.
AFTERMATH = 3.5
DRAIN_LIMIT = 30
_AT_ONCE = 8
_CHECKED_RUNS = 12
"""Newest runs; those before them have ended."""
_CHECK_EVERY_S = 0.5
_STRUCK_WHILE_STARTING = 0.1
_FREEZES_OF_SERVER = 0.4
_CANCEL_EVERY = 8
PLANNED = 0.4
"""The share of runs with the strategy `planned`."""
_DIRECT, _WRONG, _REFUSED = 0.15, 0.2, 0.25
"""Shares of these: direct responses, plans that are rejected, plans with a call that fails."""
_HURRIED, _WRITTEN = 0.2, 0.25
"""Shares of these: with a short deadline, and with a plan as JSON."""


@dataclass(frozen=True)
class Storm:
    """How much is to happen: runs and blows go on until both numbers are reached."""

    runs: int
    blows: int
    server_kills: int
    seed: int
    pause_s: tuple[float, float] = (0.2, 0.9)


@dataclass
class Session:
    """One session under way: what was done to it, and what became of its runs."""

    storm: Storm
    system: System
    rng: random.Random
    runs: list[RunEvidence] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    hung: list[str] = field(default_factory=list)
    blows: Counter[str] = field(default_factory=Counter)
    history: list[tuple[float, str, str]] = field(default_factory=list)
    """When (Unix s), what, to whom: for finding the cause of a broken promise."""
    connections: int = 0
    down: set[str] = field(default_factory=set)
    """Processes that are being struck, until they run again."""
    open_runs: list[OpenRun] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    """Processes that ended by themselves, with the ends of their logs."""

    @property
    def struck(self) -> int:
        """Blows so far."""
        return self.blows.total()

    def note(self, blow: str, name: str) -> None:
        """Count a blow."""
        kind = name.rsplit("-", 1)[0]
        self.blows[f"{blow} {kind}"] += 1
        pid = self.system.stack.pid(name) if name in self.system.stack.parts else ""
        self.history.append((time.time(), blow, f"{name} {pid}"))


async def rage(session: Session) -> None:
    """Let the blows fall, and see to it that what was struck comes back."""
    storm, rng = session.storm, session.rng
    recovering: set[asyncio.Task[None]] = set()
    server_at = sorted(rng.sample(range(1, storm.blows), storm.server_kills)) if storm.server_kills else []
    while session.struck < storm.blows:
        await asyncio.sleep(rng.uniform(*storm.pause_s))
        if server_at and session.struck >= server_at[0]:
            server_at.pop(0)
            await _strike_server(session)
            continue
        task = asyncio.create_task(_strike(session, rng.choice(list(session.system.stack.parts))))
        recovering.add(task)
    await asyncio.gather(*recovering)


async def _strike_server(session: Session) -> None:
    nats, rng = session.system.nats, session.rng
    if rng.random() < _FREEZES_OF_SERVER:
        # Longer than anybody waits for one answer, so that writes are repeated whose first form is on its way.
        session.note("freeze", "nats")
        nats.freeze()
        await asyncio.sleep(rng.uniform(2.1, 3.5))
        session.history.append((time.time(), "thaw", "nats"))
        nats.thaw()
        return
    session.note("kill", "nats")
    nats.kill()
    await asyncio.sleep(rng.uniform(0.05, 1.5))
    await asyncio.to_thread(nats.start)


async def _strike(session: Session, name: str) -> None:
    if name in session.down:
        return
    session.down.add(name)
    try:
        # Who is struck while starting has done nothing yet; with too much of that nobody ever does, since a start takes
        # seconds.
        if (
            await asyncio.to_thread(session.system.stack.is_ready, name)
            or session.rng.random() < _STRUCK_WHILE_STARTING
        ):
            await _strike_down(session, name)
    finally:
        session.down.remove(name)


async def _strike_down(session: Session, name: str) -> None:
    stack, rng = session.system.stack, session.rng
    kind = rng.random()
    if kind < 0.35:
        session.note("freeze", name)
        stack.freeze(name)
        await asyncio.sleep(ACK_WAIT_S * rng.uniform(1.3, 2.5))
        session.history.append((time.time(), "thaw", f"{name} {stack.pid(name)}"))
        stack.thaw(name)
        return
    if kind < 0.85:
        session.note("kill", name)
        stack.kill(name)
    else:
        session.note("terminate", name)
        await asyncio.to_thread(stack.terminate, name)
    await asyncio.sleep(rng.uniform(0.05, 0.6))
    stack.spawn(name)
    session.history.append((time.time(), "spawn", f"{name} {stack.pid(name)}"))


async def supervise(session: Session) -> None:
    """Start again what ended by itself, for ever; that it did is a complaint."""
    stack = session.system.stack
    while True:
        for name, part in stack.parts.items():
            if not part.alive and name not in session.down:
                session.crashes.append(f"{name}: {stack.tail_of(name)[-2000:]}")
                stack.spawn(name)
        await asyncio.sleep(0.2)


async def watch(session: Session) -> None:
    """Note what others find of the open runs, for ever."""
    bus = await evidence.connect(session.system.nats)
    followed: dict[str, RunEvidence] = {}
    try:
        while True:
            for run in session.runs[-_CHECKED_RUNS:]:
                with contextlib.suppress(BusError):  # Its server may be down.
                    found = await evidence.open_run_of(bus, followed.setdefault(run.run_id, RunEvidence(run.run_id)))
                    session.open_runs += [found] if found is not None else []
            await asyncio.sleep(_CHECK_EVERY_S)
    finally:
        await bus.leave()


def draw(rng: random.Random, nth: int) -> Plan:
    """Choose what a run does: a plan, or up to four turns of one call, or of two or three at once, then the answer."""
    turns = tuple(
        tuple(rng.choice(["often", "once"]) for _ in range(rng.choice([1, 1, 2, 3]))) for _ in range(rng.randint(0, 4))
    )
    chosen = Plan(
        turns=turns,
        call_ms=rng.choice([0, 0, 50, 300, 900]),
        tokens=rng.randint(3, 40),
        pace_ms=rng.choice([0, 2, 20]),
        delay_ms=rng.choice([0, 50, 400]),
        fails=rng.choice([0, 0, 0, 1, 2]),
        nth=f"{nth:05d}",
    )
    return planned(chosen, rng) if rng.random() < PLANNED else chosen


def planned(plan: Plan, rng: random.Random) -> Plan:
    """Choose a plan of up to five calls: they are made, one of them fails, the plan is rejected, or it has none."""
    kind, tools = rng.random(), [rng.choice(["often", "once"]) for _ in range(rng.randint(1, 5))]
    wrong, last = "", len(tools) - 1
    if kind < _DIRECT:
        tools = []
    elif kind < _DIRECT + _WRONG:
        wrong = rng.choice([f"${last}.output.did", "$0.output.absent", "$9.output.did", "$0.output."])
    elif kind < _DIRECT + _WRONG + _REFUSED:
        tools[rng.randint(0, last)] = "refuse"
    deadline_s = rng.randint(1, 4) if rng.random() < _HURRIED else 0
    turns = tuple((tool,) for tool in tools)
    agent = WRITES if rng.random() < _WRITTEN else plan.agent
    return replace(plan, strategy="planned", turns=turns, wrong=wrong, deadline_s=deadline_s, agent=agent)


async def _one(session: Session, client: Client, nth: int, rng: random.Random) -> None:
    plan = draw(rng, nth)
    run = RunEvidence("", cancelled_by_client=nth % _CANCEL_EVERY == 0, may_fail=plan.deadline_s > 0, script=plan)
    async with asyncio.TaskGroup() as tasks:
        run.run_id = await client.ask(plan.query, key=f"chaos-{session.storm.seed}-{nth}", **plan.request)
        session.runs.append(run)
        session.plans[run.run_id] = plan
        if run.cancelled_by_client:
            tasks.create_task(_after(rng.uniform(0, 1.5), lambda: client.cancel(run.run_id)))
        try:
            async with asyncio.timeout(RUN_LIMIT):
                await client.follow(run.run_id, run.seen, hop=lambda: rng.uniform(0.03, 0.8))
        except TimeoutError:
            session.hung.append(run.run_id)


async def _after(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(seconds)
    await act()


async def _feed(session: Session, client: Client) -> None:
    """Start runs, a few at once, until there were enough of them and the storm is over."""
    running: set[asyncio.Task[None]] = set()
    nth = 0
    while nth < session.storm.runs or session.struck < session.storm.blows:
        nth += 1
        running.add(asyncio.create_task(_one(session, client, nth, random.Random(f"{session.storm.seed}.{nth}"))))
        if len(running) >= _AT_ONCE:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    await asyncio.gather(*running)


async def hold(storm: Storm, system: System) -> Session:
    """Hold one session; afterwards everything runs again and what was frozen has had its time."""
    session = Session(storm, system, random.Random(storm.seed))
    stack = system.stack
    async with Client(*(stack.url_of(name) for name in stack.names("gateway"))) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(rage(session))
        meanwhile = [tasks.create_task(supervise(session)), tasks.create_task(watch(session))]
        await _feed(session, client)
        for task in meanwhile:
            task.cancel()
        session.connections = client.connections
    await asyncio.to_thread(stack.mend)
    await asyncio.sleep(AFTERMATH)
    return session


async def judged(session: Session) -> tuple[Evidence, dict[str, list[str]]]:
    """Gather the evidence and apply every rule."""
    bus = await evidence.connect(session.system.nats)
    try:

        async def drained() -> bool:
            return not any((await evidence.left(bus)).values())

        with contextlib.suppress(AssertionError):  # `leaves_nothing` says what is left.
            await wait_until(drained, timeout=DRAIN_LIMIT, what="the queues are empty")
        requests = session.system.model.requests()
        for run in session.runs:
            run.requests = dict(requests[session.plans[run.run_id].nth])
        found = await evidence.gather(bus, session.runs, session.system.ledger, IDEMPOTENT)
        found.hung = [f"{run_id}: {session.plans[run_id]}" for run_id in session.hung]
        found.dead_letters = [
            f"{subject}: {reason}: {body[:200]!r}" for subject, reason, body in await evidence.dead(bus)
        ]
        found.crashed = session.crashes
        found.open_runs, found.blows = session.open_runs, [at for at, _, _ in session.history]
        return found, judge(found)
    finally:
        await bus.leave()
