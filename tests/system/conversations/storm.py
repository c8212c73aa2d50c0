"""Sessions full of overlapping requests, approvals, questions, added texts and cancels, while processes are killed."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.support.waiting import wait_until
from tests.system.conversations import rules
from tests.system.conversations.evidence import Conversations, Input
from tests.system.conversations.people import decide
from tests.system.model import Plan
from tests.system.run_storm import PLANNED
from tests.system.storm import SessionStorm
from tests.system.traces import RunEvidence

_ON_BUSY = ("queue", "queue", "steer", "reject", "cancel")
_TOOLS = ("once", "pay", "paint")
AGENTS = {"default": {"tools": [*_TOOLS]}}
_IDEMPOTENT = dict.fromkeys(_TOOLS, False)
_LOOK_EVERY_S = 0.15
_END_LIMIT_S = 150
_INPUTS, _CANCELS = 0.25, 0.08
_WRONG = 0.15
"""Share of the plans that are rejected."""


@dataclass
class TalkStorm(SessionStorm):
    """One storm under way."""

    found: Conversations = field(default_factory=lambda: Conversations([], idempotent=_IDEMPOTENT))
    open: set[str] = field(default_factory=set)
    """Runs that may not have ended."""
    rules = rules.RULES

    async def meanwhile(self) -> None:
        """Look for open pauses, and decide about each."""
        rng = random.Random(f"{self.seed}.people")
        while True:
            for run in sorted(self.open):
                with contextlib.suppress(httpx.HTTPError, AssertionError):
                    for pause in (await self.client.status(run))["pauses"]:
                        await decide(self.client, self.found, pause, rng)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def talk(self, session_id: str, requests: int, rng: random.Random) -> None:
        """Send the requests without waiting for the end of each."""
        for nth in range(requests):
            plan = draw(rng, f"{session_id}-{nth}")
            body = {"query": plan.query, "session_id": session_id, "strategy": plan.strategy}
            body |= {"on_busy": rng.choice(_ON_BUSY), "on_paused": rng.choice(_ON_BUSY)}
            answer = await self.client.surely("POST", "/v1/runs", json=body, headers={"Idempotency-Key": plan.nth})
            if answer.status_code == 409:
                assert answer.json()["code"] == "session_busy", answer.text
                continue
            assert answer.status_code == 202, answer.text
            run = RunEvidence(str(answer.json()["run_id"]), may_fail=True)
            self.found.runs.append(run)
            self.found.session_of[run.run_id] = session_id
            self.open.add(run.run_id)
            await asyncio.sleep(rng.choice([0, 0.05, 0.5, 1.5]))
            if rng.random() < _INPUTS:
                await self._add_input(run.run_id, f"note-{plan.nth}")
            if rng.random() < _CANCELS:
                await self.client.cancel(run.run_id)
        await self._until_all_ended(session_id)

    async def _add_input(self, run: str, text: str) -> None:
        given = Input(run, text)
        self.found.inputs.append(given)
        path, headers = f"/v1/runs/{run}/input", {"Idempotency-Key": text}
        answer = await self.client.surely("POST", path, json={"text": text}, headers=headers)
        given.status, given.at = answer.status_code, time.time()
        assert answer.status_code in {200, 202, 409}, answer.text

    async def _until_all_ended(self, session_id: str) -> None:
        until = time.monotonic() + _END_LIMIT_S
        for run in [run for run, session in self.found.session_of.items() if session == session_id]:

            async def ended(run: str = run) -> bool:
                return (await self.client.status(run))["ended_at"] is not None

            try:
                await wait_until(ended, timeout=max(1.0, until - time.monotonic()), what=f"{run} has ended")
            except AssertionError:
                self.found.hung.append(f"{session_id}: {await self.client.status(run)}")
            self.open.discard(run)

    def counts(self) -> Counter[str]:
        decided = (f"decided {each.decision} {each.status}" for each in self.found.decisions)
        return Counter([*decided, *(f"input {each.status}" for each in self.found.inputs)])


def draw(rng: random.Random, nth: str) -> Plan:
    """Choose what a run does: up to two turns of one call, or of two at once, or one plan of them; then the answer."""
    turns = tuple(tuple(rng.choice(_TOOLS) for _ in range(rng.choice([1, 1, 2]))) for _ in range(rng.randint(0, 2)))
    is_planned = rng.random() < PLANNED
    return Plan(
        strategy="planned" if is_planned else "react",
        wrong="$0.output.absent" if is_planned and rng.random() < _WRONG else "",
        turns=turns,
        call_ms=rng.choice([0, 50, 300]),
        tokens=rng.randint(3, 30),
        pace_ms=rng.choice([0, 2, 20]),
        delay_ms=rng.choice([0, 50, 300]),
        nth=nth,
    )
