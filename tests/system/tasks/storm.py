"""Sessions full of background tasks, with people who decide and cancel, while processes are killed."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.conversations.people import decide
from tests.system.storm import DRAIN_LIMIT_S, SessionStorm
from tests.system.tasks import rules, schedules, workload
from tests.system.tasks.evidence import Control, Tasks, gather
from tests.system.traces import RunEvidence

_LOOK_EVERY_S, _LOOK_AGAIN_S = 0.2, 2.0
_END_LIMIT_S = 150
_CANCELS, _OWN_SESSIONS, _SCHEDULED = 0.1, 0.15, 0.15
_CONTROLS_EACH_LOOK = 0.02


@dataclass
class TaskStorm(SessionStorm):
    """One storm under way."""

    found: Tasks = field(default_factory=lambda: Tasks([]))
    open: set[str] = field(default_factory=set)
    """Sessions in which something may go on."""
    quiet: set[str] = field(default_factory=set)
    """Those of them in which nothing seemed to go on."""
    people: set[asyncio.Task[None]] = field(default_factory=set)
    """Of each session, who decides."""
    seen: set[str] = field(default_factory=set)
    """Groups with held results that people have seen: they decide once, or never."""
    rules = rules.RULES

    async def work(self) -> None:
        """Make the webhook first."""
        await schedules.make_webhook(self.client, self.found)
        await super().work()

    async def calm(self) -> None:
        """Wait for what is due, and until nothing goes on."""
        await schedules.until_fired(self.client, self.found)
        await self._until_over()

    async def gather(self, bus: Bus) -> None:
        """All runs, also those that nobody requested."""
        await gather(bus, self.found, self.system.ledger)

    def counts(self) -> Counter[str]:
        decided = (f"decided {each.decision} {each.status}" for each in self.found.decisions)
        controls = (f"{each.action} {each.status} {each.code}".strip() for each in self.found.controls)
        return Counter([*decided, *controls, *("due run" for _ in self.found.fires)])

    async def talk(self, session_id: str, requests: int, rng: random.Random) -> None:
        """Send the requests without waiting for the end of each; then wait until it is quiet."""
        sessions = {session_id}
        for nth in range(requests):
            name = f"{session_id}-{nth}"
            body = workload.request(rng, name)
            if rng.random() >= _OWN_SESSIONS:
                body["session_id"] = session_id
            sessions.add(await self._request(body, rng, name))
            await asyncio.sleep(rng.choice([0, 0.1, 0.5, 1.5]))
            if rng.random() < _SCHEDULED:
                await schedules.one_off(self.client, self.found, name, in_s=rng.randint(2, 5))
            if rng.random() < _SCHEDULED:
                await schedules.deliver(self.client, self.found, name)
        for each in sorted(sessions):
            await self._until_quiet(each)

    async def _request(self, body: dict[str, Any], rng: random.Random, key: str) -> str:
        """Request a run; return its session."""
        answer = await self.client.surely("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == 202, answer.text
        run, session = str(answer.json()["run_id"]), str(answer.json()["session_id"])
        is_cancelled = rng.random() < _CANCELS
        self.found.runs.append(RunEvidence(run, cancelled_by_client=is_cancelled, may_fail=True))
        self.found.session_of[run] = session
        if session not in self.open:
            self.open.add(session)
            self.people.add(asyncio.create_task(self._act_in(session)))
        if is_cancelled:
            await asyncio.sleep(rng.uniform(0, 3))
            await self.client.cancel(run)
        return session

    async def _until_quiet(self, session: str) -> None:
        """Wait until a session seems quiet. A report may be requested later, so people go on looking, less often."""

        async def quiet() -> bool:
            return await self._is_quiet(session)

        try:
            await wait_until(quiet, timeout=_END_LIMIT_S, what=f"{session} is quiet")
        except AssertionError:
            status = await self.client.get(f"/v1/sessions/{session}")
            self.found.hung.append(f"{session}: {status} {await self._listed(session)}")
        self.quiet.add(session)

    async def _is_quiet(self, session: str) -> bool:
        """Whether no run and no task of a session goes on, and no group is open."""
        mine = [run for run, its_session in self.found.session_of.items() if its_session == session]
        if not all([await schedules.has_ended(self.client, run) for run in mine]):
            return False  # A request may not have joined the session yet.
        status = await self.client.get(f"/v1/sessions/{session}")
        if status["current_run"] or status["queued_runs"]:
            return False
        tasks, groups = await self._listed(session)
        reports = [group["report_id"] for group in groups if group["report_id"]]
        return (
            all(task["status"] != "running" for task in tasks)
            and all(group["status"] in {"complete", "failed"} for group in groups)
            and all([await schedules.has_ended(self.client, run) for run in reports])
        )

    async def _until_over(self) -> None:
        """Wait until the queues are empty and every session is quiet: nothing more happens. Send the people home."""
        async with evidence.connected(self.system.nats) as bus:

            async def over() -> bool:
                is_drained = not any((await evidence.left(bus)).values())
                return is_drained and all([await self._is_quiet(session) for session in sorted(self.open)])

            try:
                await wait_until(over, timeout=DRAIN_LIMIT_S, what="nothing goes on")
            except AssertionError as error:
                self.found.hung.append(str(error))
        self.open.clear()
        await asyncio.gather(*self.people)

    async def _listed(self, session: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The tasks and the groups of a session."""
        tasks = (await self.client.get(f"/v1/tasks?session_id={session}"))["tasks"]
        return tasks, (await self.client.get(f"/v1/groups?session_id={session}"))["groups"]

    async def _act_in(self, session: str) -> None:
        """Decide about what waits for a person in a session, until the end; now and then cancel or seal something."""
        rng = random.Random(f"{self.seed}.{session}.people")
        while session in self.open:
            found = await self.client.surely("GET", f"/v1/sessions/{session}")
            if found.status_code == 200:  # Before its first run has begun, there is no session.
                await asyncio.gather(*(decide(self.client, self.found, pause, rng) for pause in found.json()["pauses"]))
                await self._control(session, rng)
            await asyncio.sleep(_LOOK_AGAIN_S if session in self.quiet else _LOOK_EVERY_S)

    async def _control(self, session: str, rng: random.Random) -> None:
        """Apply or reject what is held, each at some time; cancel or seal what goes on, now and then."""
        tasks, groups = await self._listed(session)
        for group in groups:
            path = f"/v1/groups/{group['group_id']}"
            if group["awaits_decision"] and group["decision"] is None:
                await self._decide_group(path, group["group_id"], rng)
            elif group["status"] in {"open", "sealed"} and rng.random() < _CONTROLS_EACH_LOOK:
                await self._send_control(path, rng.choice(["cancel", "seal", "apply"]), group["group_id"])
        for task in tasks:
            path = f"/v1/tasks/{task['task_id']}"
            if task["is_held"] and task["group_id"] is None:
                await self._decide_group(path, task["task_id"], rng)
            elif task["status"] == "running" and rng.random() < _CONTROLS_EACH_LOOK:
                await self._send_control(path, "cancel", task["task_id"])

    async def _decide_group(self, path: str, target: str, rng: random.Random) -> None:
        """Decide about a held result; of ten one stays undecided, and two are decided in both ways at once."""
        if target in self.seen:
            return
        chance = rng.random()
        self.seen.add(target)
        if chance < 0.1:
            return
        actions = ["apply", "reject"] if chance < 0.3 else ["apply"] if chance < 0.8 else ["reject"]
        await asyncio.gather(*(self._send_control(path, action, target) for action in actions))

    async def _send_control(self, path: str, action: str, target: str) -> None:
        """Ask for a change until its answer is known."""
        control = Control(action, target)
        self.found.controls.append(control)
        headers = {"Idempotency-Key": f"control-{len(self.found.controls)}"}
        while control.status in {0, 202}:
            answer = await self.client.surely("POST", f"{path}/{action}", json={}, headers=headers)
            control.status = answer.status_code
        control.code = answer.json().get("code", "") if control.status != 200 else ""
        assert control.status in {200, 404, 409}, (control, answer.text)
