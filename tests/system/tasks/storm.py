"""Sessions full of background tasks, with people who decide and cancel, while processes are killed.

The blows are those of `tests.system.chaos`. All choices come from one seed; the order in which processes get their turn
does not.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.waiting import wait_until
from tests.system import chaos, evidence
from tests.system.client import Client
from tests.system.conversations.evidence import Conversations, Decision
from tests.system.system import System
from tests.system.tasks import schedules, workload
from tests.system.tasks.evidence import Control, TaskStorm, gather
from tests.system.tasks.rules import judge
from tests.system.traces import Evidence, RunEvidence

_LOOK_EVERY_S, _LOOK_AGAIN_S = 0.2, 2.0
_END_LIMIT_S = 120
_CANCELS, _OWN_SESSIONS, _DECIDED_TWICE, _SCHEDULED = 0.1, 0.15, 0.2, 0.15
_CONTROLS_EACH_LOOK = 0.02
_AT_ONCE = 6
"""Sessions that go on at the same time."""


@dataclass
class Work:
    """One storm under way."""

    storm: chaos.Storm
    session: chaos.Session
    found: TaskStorm
    client: Client
    open: set[str] = field(default_factory=set)
    """Sessions in which something may go on."""
    quiet: set[str] = field(default_factory=set)
    """Those of them in which nothing seemed to go on."""
    people: set[asyncio.Task[None]] = field(default_factory=set)
    """Of each session, who decides."""
    seen: set[str] = field(default_factory=set)
    """Groups with held results that people have seen: they decide once, or never."""
    decided: set[str] = field(default_factory=set)


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
    headers = {"Idempotency-Key": f"{work.storm.seed}-{key}"}
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
    bus = await evidence.connect(work.session.system.nats)

    async def over() -> bool:
        is_drained = not any((await evidence.left(bus)).values())
        return is_drained and all([await _is_quiet(work, session) for session in sorted(work.open)])

    try:
        await wait_until(over, timeout=chaos.DRAIN_LIMIT, what="nothing goes on")
    except AssertionError as error:
        work.found.talks.of_runs.hung.append(str(error))
    finally:
        await bus.leave()
    work.open.clear()
    await asyncio.gather(*work.people)


async def has_ended(client: Client, run: str) -> bool:
    """Whether a run has begun, and ended."""
    answer = await client.surely("GET", f"/v1/runs/{run}")
    return answer.status_code == 200 and answer.json()["status"] not in {"queued", "running"}


async def _listed(work: Work, session: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tasks and the groups of a session."""
    tasks = (await work.client.get(f"/v1/tasks?session_id={session}"))["tasks"]
    return tasks, (await work.client.get(f"/v1/groups?session_id={session}"))["groups"]


async def _act_in(work: Work, session: str) -> None:
    """Decide about what waits for a person in a session, until the end; now and then cancel or seal something."""
    rng = random.Random(f"{work.storm.seed}.{session}.people")
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


async def hold(storm: chaos.Storm, system: System, *, sessions: int) -> Work:
    """Hold one storm; afterwards everything runs again and what was frozen has had its time."""
    session = chaos.Session(storm, system, random.Random(storm.seed))
    stack = system.stack
    async with Client(*(stack.url_of(name) for name in stack.names("gateway"))) as client:
        work = Work(storm, session, TaskStorm(Conversations(Evidence([]))), client)
        await schedules.make_webhook(client, work.found)
        async with asyncio.TaskGroup() as tasks:
            raging = tasks.create_task(chaos.rage(session))
            supervising = tasks.create_task(chaos.supervise(session))
            places = asyncio.Semaphore(_AT_ONCE)
            names = [f"work-{storm.seed}-{n}" for n in range(sessions)]
            await asyncio.gather(*(_work_in(work, places, name, storm.runs // sessions) for name in names))
            await raging
            supervising.cancel()
        await asyncio.to_thread(stack.mend)
        await schedules.until_fired(client, work.found)
        await _until_over(work)
    await asyncio.sleep(chaos.AFTERMATH)
    return work


async def judged(work: Work) -> dict[str, list[str]]:
    """Gather the evidence and apply every rule."""
    bus = await evidence.connect(work.session.system.nats)
    try:

        async def drained() -> bool:
            return not any((await evidence.left(bus)).values())

        with contextlib.suppress(AssertionError):  # `leaves_nothing` says what is left.
            await wait_until(drained, timeout=chaos.DRAIN_LIMIT, what="the queues are empty")
        await gather(bus, work.found, work.session.system.ledger)
        work.found.talks.of_runs.dead_letters = [
            f"{subject}: {reason}: {body[:200]!r}" for subject, reason, body in await evidence.dead(bus)
        ]
        work.found.talks.of_runs.crashed = work.session.crashes
        return judge(work.found)
    finally:
        await bus.leave()
