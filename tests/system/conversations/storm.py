"""Sessions full of overlapping requests, approvals, questions, added texts and cancels, while processes are killed.

Every fifth decision is sent twice, and every tenth once more under another key.
"""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.conversations.evidence import Conversations, Decision, Input, gather
from tests.system.conversations.rules import judge
from tests.system.model import Plan
from tests.system.plan_rules import plans_of
from tests.system.run_storm import PLANNED
from tests.system.storm import Storm
from tests.system.traces import RunEvidence, end_of

_ON_BUSY = ("queue", "queue", "steer", "reject", "cancel")
_TOOLS = ("once", "pay", "paint")
_LOOK_EVERY_S = 0.15
_END_LIMIT_S = 150
_DECIDED_TWICE, _DECIDED_AGAIN = 0.2, 0.1
_INPUTS, _CANCELS = 0.25, 0.08
_WRONG = 0.15
"""Share of the plans that are rejected."""
_AT_ONCE = 6
"""Sessions that go on at the same time."""


@dataclass
class TalkStorm(Storm):
    """One storm under way."""

    sessions: int = 1
    found: Conversations = field(init=False)
    client: Client = field(init=False)
    open: set[str] = field(default_factory=set)
    """Runs that may not have ended."""
    decided: set[str] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.found = Conversations(self.of_runs)

    async def work(self, client: Client) -> None:
        """Hold the sessions, a few at a time, while somebody decides."""
        self.client, places = client, asyncio.Semaphore(_AT_ONCE)
        deciding = asyncio.create_task(_decide_for_ever(self, random.Random(f"{self.seed}.people")))
        names = [f"talk-{self.seed}-{n}" for n in range(self.sessions)]
        await asyncio.gather(*(_talk_in(self, places, name, self.runs // self.sessions) for name in names))
        deciding.cancel()

    async def gather(self, bus: Bus) -> None:
        """The logs of sessions too."""
        await gather(bus, self.found, self.system.ledger)

    def judge(self) -> dict[str, list[str]]:
        """By the rules of conversations."""
        return judge(self.found)

    def report(self, complaints: dict[str, list[str]]) -> str:
        return report(self, complaints)


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


async def _talk_in(talk: TalkStorm, places: asyncio.Semaphore, session_id: str, requests: int) -> None:
    """Send the requests of one session, without waiting for the end of each."""
    async with places:
        await _ask_in(talk, session_id, requests, random.Random(session_id))
        await _until_all_ended(talk, session_id)


async def _ask_in(talk: TalkStorm, session_id: str, requests: int, rng: random.Random) -> None:
    for nth in range(requests):
        plan = draw(rng, f"{session_id}-{nth}")
        on_busy = rng.choice(_ON_BUSY)
        body = {"query": plan.query, "session_id": session_id, "on_busy": on_busy, "on_paused": rng.choice(_ON_BUSY)}
        body["strategy"] = plan.strategy
        key = f"{talk.seed}-{session_id}-{nth}"
        answer = await talk.client.surely("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key})
        if answer.status_code == 409:
            assert answer.json()["code"] == "session_busy", answer.text
            continue
        assert answer.status_code == 202, answer.text
        run = RunEvidence(str(answer.json()["run_id"]), may_fail=True)
        talk.found.of_runs.runs.append(run)
        talk.found.session_of[run.run_id] = session_id
        talk.open.add(run.run_id)
        await asyncio.sleep(rng.choice([0, 0.05, 0.5, 1.5]))
        if rng.random() < _INPUTS:
            await _add_input(talk, run.run_id, f"note-{session_id}-{nth}")
        if rng.random() < _CANCELS:
            await talk.client.cancel(run.run_id)


async def _add_input(talk: TalkStorm, run: str, text: str) -> None:
    given = Input(run, text)
    talk.found.inputs.append(given)
    answer = await talk.client.surely(
        "POST", f"/v1/runs/{run}/input", json={"text": text}, headers={"Idempotency-Key": text}
    )
    given.status, given.at = answer.status_code, time.time()
    assert answer.status_code in {200, 202, 409}, answer.text


async def _until_all_ended(talk: TalkStorm, session_id: str) -> None:
    mine = [run for run, session in talk.found.session_of.items() if session == session_id]
    until = time.monotonic() + _END_LIMIT_S
    for run in mine:

        async def ended(run: str = run) -> bool:
            return (await talk.client.status(run))["ended_at"] is not None

        try:
            await wait_until(ended, timeout=max(1.0, until - time.monotonic()), what=f"{run} has ended")
        except AssertionError:
            talk.found.of_runs.hung.append(f"{session_id}: {await talk.client.status(run)}")
        talk.open.discard(run)


async def _decide_for_ever(talk: TalkStorm, rng: random.Random) -> None:
    """Look for open pauses, and decide about each."""
    while True:
        for run in sorted(talk.open):
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                for pause in (await talk.client.status(run))["pauses"]:
                    await _decide(talk, pause, rng)
        await asyncio.sleep(_LOOK_EVERY_S)


async def _decide(talk: TalkStorm, pause: dict[str, Any], rng: random.Random) -> None:
    if pause["token"] in talk.decided:
        return
    talk.decided.add(pause["token"])
    body: dict[str, Any] = {"pause_id": pause["pause_id"], "token": pause["token"]}
    if pause["reason"] == "input":
        body |= {"decision": "answer", "input": {"colour": rng.choice(["red", "green"])}}
    else:
        body |= {"decision": rng.choice(["approve", "approve", "edit", "reject"])}
        if body["decision"] == "edit":
            body["args"] = {"ms": rng.choice([1, 20])}
    sends = [_send(talk, pause, body, key := f"decision-{talk.count}")]
    talk.count += 1
    if rng.random() < _DECIDED_TWICE:
        sends.append(_send(talk, pause, body, key))
    if rng.random() < _DECIDED_AGAIN:
        sends.append(_send(talk, pause, body, f"{key}-again"))
    await asyncio.gather(*sends)


async def _send(talk: TalkStorm, pause: dict[str, Any], body: dict[str, Any], key: str) -> None:
    """Send a decision until its answer is known."""
    decision = Decision(pause["run_id"], pause["pause_id"], body["decision"], key)
    talk.found.decisions.append(decision)
    while decision.status in {0, 202}:
        answer = await talk.client.surely(
            "POST", f"/v1/runs/{pause['run_id']}/resume", json=body, headers={"Idempotency-Key": key}
        )
        decision.status = answer.status_code
        decision.code = answer.json().get("code", "") if answer.status_code not in {200, 202} else ""
    assert decision.status in {200, 409}, (decision, body)


def report(talk: TalkStorm, complaints: dict[str, list[str]]) -> str:
    ends: Counter[str] = Counter()
    for run in talk.found.of_runs.runs:
        end = end_of(run)
        ends["none" if end is None else str(end[1].get("route") or end[1].get("code") or end[1]["type"])] += 1
    plans: Counter[str] = Counter()
    for run in talk.found.of_runs.runs:
        for plan in plans_of(run):
            plans[str(plan.ends[0]["statuses"] if plan.ends else plan.step["status"])] += 1
    said = {
        "seed": talk.seed,
        "runs": len(talk.found.of_runs.runs),
        "ends": dict(ends),
        "plans": dict(plans),
        "decisions": dict(Counter(f"{each.decision} {each.status}" for each in talk.found.decisions)),
        "inputs": dict(Counter(each.status for each in talk.found.inputs)),
        "executions": len(talk.found.of_runs.executions),
        "blows": dict(talk.struck),
        "complaints": complaints,
    }
    return json.dumps(said, indent=1)
