"""Sessions full of background tasks, with people who decide and cancel, while processes are killed."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.client import Client
from tests.system.conversations.evidence import Conversations, Decision
from tests.system.storm import DRAIN_LIMIT_S, Storm
from tests.system.tasks import schedules, workload
from tests.system.tasks.evidence import Control, TaskStorm, gather, start_of
from tests.system.tasks.rules import judge
from tests.system.traces import Event, RunEvidence, end_of

_LOOK_EVERY_S, _LOOK_AGAIN_S = 0.2, 2.0
_END_LIMIT_S = 150
_CANCELS, _OWN_SESSIONS, _DECIDED_TWICE, _SCHEDULED = 0.1, 0.15, 0.2, 0.15
_CONTROLS_EACH_LOOK = 0.02
_AT_ONCE = 6
"""Sessions that go on at the same time."""
_LONG = {
    "type",
    "request",
    "limits",
    "tools",
    "report_as",
    "llm_context",
    "payload",
    "usage",
    "spent",
    "state",
    "input_schema",
}
"""Fields that a report leaves out."""


@dataclass
class Work(Storm):
    """One storm under way."""

    sessions: int = 1
    found: TaskStorm = field(init=False)
    client: Client = field(init=False)
    open: set[str] = field(default_factory=set)
    """Sessions in which something may go on."""
    quiet: set[str] = field(default_factory=set)
    """Those of them in which nothing seemed to go on."""
    people: set[asyncio.Task[None]] = field(default_factory=set)
    """Of each session, who decides."""
    seen: set[str] = field(default_factory=set)
    """Groups with held results that people have seen: they decide once, or never."""
    decided: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.found = TaskStorm(Conversations(self.of_runs))

    async def work(self, client: Client) -> None:
        """Hold the sessions, a few at a time."""
        self.client, places = client, asyncio.Semaphore(_AT_ONCE)
        await schedules.make_webhook(client, self.found)
        names = [f"work-{self.seed}-{n}" for n in range(self.sessions)]
        await asyncio.gather(*(_work_in(self, places, name, self.runs // self.sessions) for name in names))

    async def calm(self, client: Client) -> None:
        """Wait for what is due, and until nothing goes on."""
        await schedules.until_fired(client, self.found)
        await _until_over(self)

    async def gather(self, bus: Bus) -> None:
        await gather(bus, self.found, self.system.ledger)
        self.of_runs = self.found.talks.of_runs

    def judge(self) -> dict[str, list[str]]:
        return judge(self.found)

    def report(self, complaints: dict[str, list[str]]) -> str:
        """As counts, and what happened around a broken promise."""
        return "\n".join([_counts(self, complaints), *_timeline(self, json.dumps(complaints))])


async def _work_in(work: Work, places: asyncio.Semaphore, session_id: str, requests: int) -> None:
    """Send the requests of one session, without waiting for the end of each; then wait until it is quiet."""
    async with places:
        rng = random.Random(session_id)
        sessions = {session_id}
        for nth in range(requests):
            body = workload.request(rng, f"{session_id}-{nth}")
            if rng.random() >= _OWN_SESSIONS:
                body["session_id"] = session_id
            sessions.add(await _request(work, body, rng, f"{session_id}-{nth}"))
            await asyncio.sleep(rng.choice([0, 0.1, 0.5, 1.5]))
            if rng.random() < _SCHEDULED:
                await schedules.one_off(work.client, work.found, f"{session_id}-{nth}", in_s=rng.randint(2, 5))
            if rng.random() < _SCHEDULED:
                await schedules.deliver(work.client, work.found, f"{session_id}-{nth}")
        for each in sorted(sessions):
            await _until_quiet(work, each)


async def _request(work: Work, body: dict[str, Any], rng: random.Random, key: str) -> str:
    """Request a run; return its session."""
    headers = {"Idempotency-Key": f"{work.seed}-{key}"}
    answer = await work.client.surely("POST", "/v1/runs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    run, session = str(answer.json()["run_id"]), str(answer.json()["session_id"])
    is_cancelled = rng.random() < _CANCELS
    work.found.talks.of_runs.runs.append(RunEvidence(run, cancelled_by_client=is_cancelled, may_fail=True))
    work.found.talks.session_of[run] = session
    if session not in work.open:
        work.open.add(session)
        work.people.add(asyncio.create_task(_act_in(work, session)))
    if is_cancelled:
        await asyncio.sleep(rng.uniform(0, 3))
        await work.client.cancel(run)
    return session


async def _until_quiet(work: Work, session: str) -> None:
    """Wait until a session seems quiet. A report may be requested later, so people go on looking, less often."""

    async def quiet() -> bool:
        return await _is_quiet(work, session)

    try:
        await wait_until(quiet, timeout=_END_LIMIT_S, what=f"{session} is quiet")
    except AssertionError:
        status = await work.client.get(f"/v1/sessions/{session}")
        work.found.talks.of_runs.hung.append(f"{session}: {status} {await _listed(work, session)}")
    work.quiet.add(session)


async def _is_quiet(work: Work, session: str) -> bool:
    """Whether no run and no task of a session goes on, and no group is open."""
    mine = [run for run, its_session in work.found.talks.session_of.items() if its_session == session]
    if not all([await has_ended(work.client, run) for run in mine]):
        return False  # A request may not have joined the session yet.
    status = await work.client.get(f"/v1/sessions/{session}")
    if status["current_run"] or status["queued_runs"]:
        return False
    tasks, groups = await _listed(work, session)
    reports = [group["report_id"] for group in groups if group["report_id"]]
    return (
        all(task["status"] != "running" for task in tasks)
        and all(group["status"] in {"complete", "failed"} for group in groups)
        and all([await has_ended(work.client, run) for run in reports])
    )


async def _until_over(work: Work) -> None:
    """Wait until the queues are empty and every session is quiet: then nothing more happens. Send the people home."""
    bus = await evidence.connect(work.system.nats)

    async def over() -> bool:
        is_drained = not any((await evidence.left(bus)).values())
        return is_drained and all([await _is_quiet(work, session) for session in sorted(work.open)])

    try:
        await wait_until(over, timeout=DRAIN_LIMIT_S, what="nothing goes on")
    except AssertionError as error:
        work.found.talks.of_runs.hung.append(str(error))
    finally:
        await bus.leave()
    work.open.clear()
    await asyncio.gather(*work.people)


async def has_ended(client: Client, run: str) -> bool:
    """Whether a run has begun, and ended."""
    answer = await client.surely("GET", f"/v1/runs/{run}")
    return answer.status_code == 200 and answer.json()["ended_at"] is not None


async def _listed(work: Work, session: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tasks and the groups of a session."""
    tasks = (await work.client.get(f"/v1/tasks?session_id={session}"))["tasks"]
    return tasks, (await work.client.get(f"/v1/groups?session_id={session}"))["groups"]


async def _act_in(work: Work, session: str) -> None:
    """Decide about what waits for a person in a session, until the end; now and then cancel or seal something."""
    rng = random.Random(f"{work.seed}.{session}.people")
    while session in work.open:
        found = await work.client.surely("GET", f"/v1/sessions/{session}")
        if found.status_code == 200:  # Before its first run has begun, there is no session.
            await asyncio.gather(*(_decide(work, pause, rng) for pause in found.json()["pauses"]))
            await _control(work, session, rng)
        await asyncio.sleep(_LOOK_AGAIN_S if session in work.quiet else _LOOK_EVERY_S)


async def _decide(work: Work, pause: dict[str, Any], rng: random.Random) -> None:
    if pause["token"] in work.decided:
        return
    work.decided.add(pause["token"])
    chosen = workload.decision(rng, pause)
    body = {"pause_id": pause["pause_id"], "token": pause["token"], **chosen}
    again = rng.random() < _DECIDED_TWICE
    key = f"decision-{len(work.decided)}"
    await asyncio.gather(*(_send_decision(work, pause, body, key) for _ in range(2 if again else 1)))


async def _send_decision(work: Work, pause: dict[str, Any], body: dict[str, Any], key: str) -> None:
    decision = Decision(pause["run_id"], pause["pause_id"], body["decision"], key)
    work.found.talks.decisions.append(decision)
    while decision.status in {0, 202}:
        path, headers = f"/v1/runs/{pause['run_id']}/resume", {"Idempotency-Key": key}
        answer = await work.client.surely("POST", path, json=body, headers=headers)
        decision.status = answer.status_code
    decision.code = answer.json().get("code", "") if decision.status != 200 else ""
    assert decision.status in {200, 409}, (decision, body, answer.text)


async def _control(work: Work, session: str, rng: random.Random) -> None:
    """Apply or reject what is held, each at some time; cancel or seal what goes on, now and then."""
    tasks, groups = await _listed(work, session)
    for group in groups:
        path = f"/v1/groups/{group['group_id']}"
        if group["awaits_decision"] and group["decision"] is None:
            await _decide_group(work, path, group["group_id"], rng)
        elif group["status"] in {"open", "sealed"} and rng.random() < _CONTROLS_EACH_LOOK:
            await _send_control(work, path, rng.choice(["cancel", "seal", "apply"]), group["group_id"])
    for task in tasks:
        path = f"/v1/tasks/{task['task_id']}"
        if task["is_held"] and task["group_id"] is None:
            await _decide_group(work, path, task["task_id"], rng)
        elif task["status"] == "running" and rng.random() < _CONTROLS_EACH_LOOK:
            await _send_control(work, path, "cancel", task["task_id"])


async def _decide_group(work: Work, path: str, target: str, rng: random.Random) -> None:
    """Decide about a held result; of ten one stays undecided, and two are decided in both ways at once."""
    if target in work.seen:
        return
    chance = rng.random()
    work.seen.add(target)
    if chance < 0.1:
        return
    actions = ["apply", "reject"] if chance < 0.3 else ["apply"] if chance < 0.8 else ["reject"]
    await asyncio.gather(*(_send_control(work, path, action, target) for action in actions))


async def _send_control(work: Work, path: str, action: str, target: str) -> None:
    """Ask for a change until its answer is known."""
    control = Control(action, target)
    work.found.controls.append(control)
    headers = {"Idempotency-Key": f"control-{len(work.found.controls)}"}
    while control.status in {0, 202}:
        answer = await work.client.surely("POST", f"{path}/{action}", json={}, headers=headers)
        control.status = answer.status_code
    control.code = answer.json().get("code", "") if control.status != 200 else ""
    assert control.status in {200, 404, 409}, (control, answer.text)


def _counts(work: Work, complaints: dict[str, list[str]]) -> str:
    ends: Counter[str] = Counter()
    for run in work.found.talks.of_runs.runs:
        end, request = end_of(run), start_of(run)
        cause = "?" if request is None else request["cause"]
        ends[f"{cause} {'none' if end is None else end[1].get('route') or end[1].get('code') or end[1]['type']}"] += 1
    events = Counter(
        event["type"] for each in work.found.talks.sessions.values() for record in each for event in record.events
    )
    said = {
        "seed": work.seed,
        "runs": len(work.found.talks.of_runs.runs),
        "ends": dict(sorted(ends.items())),
        "events of sessions": dict(sorted(events.items())),
        "decisions": dict(Counter(f"{each.decision} {each.status}" for each in work.found.talks.decisions)),
        "controls": dict(Counter(f"{each.action} {each.status} {each.code}".strip() for each in work.found.controls)),
        "fires": len(work.found.fires),
        "executions": len(work.found.talks.of_runs.executions),
        "blows": dict(work.struck),
        "complaints": complaints,
    }
    return json.dumps(said, indent=1)


def _timeline(work: Work, complaints: str) -> Iterator[str]:
    """What happened in the sessions and to the runs that the complaints name, and the blows, in the order of time."""
    logs = {name: records for name, records in work.found.talks.sessions.items() if name in complaints}
    named = {run.run_id for run in work.found.talks.of_runs.runs if run.run_id in complaints}
    for records in logs.values():
        named |= {run for run in work.found.runs() if run in json.dumps([record.events for record in records])}
    logs |= {
        run.run_id: run.records for run in work.found.talks.of_runs.runs if run.run_id in named and complaints != "{}"
    }
    moments = [(at, f"* {blow} {name}") for at, blow, name in work.history] if logs else []
    for name, records in logs.items():
        moments += [
            (each.at, f"{name[:12]} {_brief(event)}")
            for each in records
            if each.kind != "stream"
            for event in each.events
        ]
    yield from (f"{at % 10_000:9.3f} {what}" for at, what in sorted(moments))


def _brief(event: Event) -> str:
    shown = {name: value for name, value in event.items() if name not in _LONG and value not in (None, "", [], {})}
    return f"{event['type']} {json.dumps(shown)}"[:400]
