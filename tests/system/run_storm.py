"""A storm over runs: one after another, eight at a time.

Clients drop their connections all the time, and every eighth run is cancelled by its client. Of five runs two have the
strategy `planned`, and one has the strategy `chat`.
"""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from services.messaging.connection import Bus
from services.messaging.errors import BusError
from tests.system import checker, evidence
from tests.system.client import Client
from tests.system.model import WRITES, Plan
from tests.system.sound import IDEMPOTENT
from tests.system.storm import Storm
from tests.system.traces import Evidence, RunEvidence

RUN_LIMIT_S = 150
"""For one run. One that nobody owns stands still until its deadline, an hour; one that is struck again and again on a
machine with much else to do was seen to take 70 s."""
_AT_ONCE = 8
_CHECKED_RUNS = 12
"""Newest runs; those before them have ended."""
_CHECK_EVERY_S = 0.5
_CANCEL_EVERY = 8
PLANNED = 0.4
"""The share of runs with the strategy `planned`."""
CHAT = 0.2
"""The share of runs with the strategy `chat`."""
_DIRECT, _WRONG, _REFUSED = 0.15, 0.2, 0.25
"""Shares of these: direct responses, plans that are rejected, plans with a call that fails."""
_HURRIED, _WRITTEN = 0.2, 0.25
"""Shares of these: with a short deadline, and with a plan as JSON."""


@dataclass
class RunStorm(Storm):
    """One storm under way."""

    found: Evidence = field(default_factory=lambda: Evidence([], idempotent=IDEMPOTENT))
    rules = checker.RULES

    def draw(self, rng: random.Random, nth: int) -> Plan:
        return draw(rng, nth)

    async def work(self) -> None:
        """Start runs, a few at once, until there were enough of them and the storm is over."""
        running: set[asyncio.Task[None]] = set()
        nth = 0
        while nth < self.runs or self.struck.total() < self.blows:
            nth += 1
            running.add(asyncio.create_task(self._one(nth, random.Random(f"{self.seed}.{nth}"))))
            if len(running) >= _AT_ONCE:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*running)

    async def meanwhile(self) -> None:
        """Note what others find of the open runs."""
        followed: dict[str, RunEvidence] = {}
        async with evidence.connected(self.system.nats) as bus:
            while True:
                for run in self.found.runs[-_CHECKED_RUNS:]:
                    mine = followed.setdefault(run.run_id, RunEvidence(run.run_id))
                    with contextlib.suppress(BusError):  # Its server may be down.
                        found = await evidence.open_run_of(bus, mine)
                        self.found.open_runs += [found] if found is not None else []
                await asyncio.sleep(_CHECK_EVERY_S)

    async def gather(self, bus: Bus) -> None:
        requests = self.system.model.requests()
        for run in self.found.runs:
            assert run.script is not None
            run.requests = dict(requests[run.script.nth])
        self.found.blows = [at for at, _, _ in self.history]
        await super().gather(bus)

    def counts(self) -> Counter[str]:
        return Counter({"event streams opened": self.client.connections})

    async def _one(self, nth: int, rng: random.Random) -> None:
        plan, client = self.draw(rng, nth), self.client
        run = RunEvidence("", cancelled_by_client=nth % _CANCEL_EVERY == 0, may_fail=plan.deadline_s > 0, script=plan)
        async with asyncio.TaskGroup() as tasks:
            run.run_id = await client.ask(plan.query, key=f"chaos-{self.seed}-{nth}", **plan.request)
            self.found.runs.append(run)
            if run.cancelled_by_client:
                tasks.create_task(_cancel_soon(client, run.run_id, rng.uniform(0, 1.5)))
            try:
                async with asyncio.timeout(RUN_LIMIT_S):
                    await client.follow(run.run_id, run.seen, hop=lambda: rng.uniform(0.03, 0.8))
            except TimeoutError:
                self.found.hung.append(f"{run.run_id}: {plan}")


async def _cancel_soon(client: Client, run_id: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await client.cancel(run_id)


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
    kind = rng.random()
    if kind < PLANNED:
        return planned(chosen, rng)
    return replace(chosen, strategy="chat") if kind < PLANNED + CHAT else chosen


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
