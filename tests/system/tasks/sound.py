"""Background tasks with which nothing went wrong."""

from typing import Any

from contracts.runs.payload import Usage
from contracts.runs.requests import RunCause, RunRequested
from contracts.runs.step_events import Observed, PlannedCall, Step
from contracts.sessions import tasks
from contracts.sessions.records import RunBegun, RunEnded, RunQueued, SessionStarted
from contracts.sessions.tasks import TaskPolicy
from contracts.wire.base import Message
from contracts.wire.faults import Fault
from tests.system.tasks.evidence import Control, Fire, Tasks
from tests.system.traces import Event, RunEvidence, StoredRecord

FIRST, WAITS, GATED, STOPPED = ("1" * 32, "2" * 32, "3" * 32, "4" * 32)
TASK_A, TASK_B, TASK_W, TASK_G, TASK_S = ("a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32)
REPORT, REPORT_G, TIMED, HOOKED, SKIPPED = ("5" * 32, "6" * 32, "7" * 32, "8" * 32, "9" * 32)
SESSION = "s"
_TASKS = {TASK_A, TASK_B, TASK_W, TASK_G, TASK_S}
_USED = Usage(model_calls=1, prompt_tokens=10, completion_tokens=8)


def _dump(event: Message) -> Event:
    return event.model_dump(mode="json")


class _Deployment:
    """Logs as they grow: one clock, one sequence."""

    def __init__(self) -> None:
        self.now = 100.0
        self.runs: dict[str, RunEvidence] = {}
        self.session: list[StoredRecord] = []

    def run(self, run: str, *events: Message | Event) -> None:
        """Append a record to the log of a run."""
        self.now += 1
        stored = [_dump(each) if isinstance(each, Message) else each for each in events]
        evidence = self.runs.setdefault(run, RunEvidence(run, may_fail=True))
        evidence.records.append(StoredRecord(int(self.now), "log", self.now, stored))

    def tell(self, *events: Message) -> None:
        """Append a record to the log of the session."""
        self.now += 1
        self.session.append(StoredRecord(int(self.now), "session", self.now, [_dump(each) for each in events]))

    def begin(self, run: str, cause: RunCause = "user", *, tasks: bool = True, **request: Any) -> None:
        """A run starts; `request`: more fields of it."""
        if cause in {"user", "report"}:
            self.tell(RunQueued(run=run, cause=cause, requested_at=0), RunBegun(run=run))
        limits = {"max_tokens": 1000, "max_tool_calls": 8, **request.pop("limits", {})}
        fixed = {"run_id": run, "tenant": "default", "requested_at": 0, "trace_id": "", "query": "q"}
        own = {"session_id": SESSION, "cause": cause, "limits": limits}
        asked = RunRequested.model_validate({**fixed, **own, **request})
        policy = _dump(TaskPolicy()) if tasks else None
        seen = int(self.now)
        started = {"type": "run_started", "run_id": run, "request": _dump(asked), "limits": limits, "tasks": policy}
        self.run(run, {**started, "conversation_seq": seen, "has_tool_context": True})

    def spawn(self, run: str, call: str, task: str, group: str, mode: tasks.TaskMode, **opened: Any) -> None:
        """A run spawns a task, with a person's consent; `opened`: settings of the group that it makes."""
        aside = tasks.Reservation(max_tokens=200, max_tool_calls=2)
        planned = PlannedCall(call_id=call, tool="task.spawn", set_aside=aside)
        pause = f"{call:>032}"
        self.run(run, Step(step=1, node="task", status="started", calls=[planned], usage=_USED))
        self.run(run, {"type": "paused", "pause_id": pause, "call_id": call, "reason": "confirmation", "digest": "x"})
        answer = {"type": "resumed", "pause_id": pause, "decision": "answer", "input": {"approve": True}, "digest": ""}
        self.run(run, answer)
        made = [tasks.GroupOpened(group_id=group, run=run, **opened)] if opened else []
        self.tell(*made, tasks.TaskSpawned(task_id=task, group_id=group, run=run, call_id=call, mode=mode))
        cause: RunCause = "task" if mode == "subagent" else "job"
        self.begin(task, cause, tasks=False, parent=run, limits=aside.model_dump(exclude_none=True))

    def answer(self, run: str, call: str, *, status: Any = "succeeded", observation: Any = None) -> None:
        """A call of a run has its outcome."""
        self.run(run, Observed(call_id=call, tool="task.spawn", status=status, observation=observation))

    def end(self, run: str, outcome: Any = "done") -> None:
        more = {"reason": "answer_complete", "raw_answer": f"of {run}"} if outcome == "done" else {}
        self.run(run, {"type": outcome, "route": None, "extra": {}, "usage": _dump(_USED), **more})
        if run not in _TASKS:
            self.tell(RunEnded(run=run, outcome=outcome))

    def task_ends(self, task: str, outcome: Any, *more: Message, parent: str = "", call: str = "") -> None:
        """A task's run ends; `more`: what follows in its session. `parent`: it is told, if it goes on."""
        self.end(task, {"succeeded": "done", "failed": "error"}.get(outcome, outcome))
        digest = f"of {task}" if outcome == "succeeded" else ""
        self.tell(tasks.TaskEnded(task_id=task, outcome=outcome, digest=digest, spent=_USED, usage=_USED), *more)
        if parent:
            self.run(parent, {"type": "task_settled", "call_id": call, "task_id": task, "spent": _dump(_USED)})

    def report(self, report: str, group: str, found: list[str], failed: list[str] | None = None) -> None:
        """A report is recorded, runs and ends."""
        self.tell(tasks.Reported(report_id=report, group_id=group, kind="group", tasks=found, failed=failed or []))
        self.begin(report, "report", llm_context={"results": [f"of {task}" for task in found]})
        self.end(report)


def sound() -> Tasks:
    """A group of two with a report, one that its run waits for, a gated one, a cancelled run, a schedule, a webhook."""
    at = _Deployment()
    at.tell(SessionStarted(session_id=SESSION))
    _group_with_report(at)
    _group_with_waiter(at)
    _gated_group(at)
    _cancelled_run(at)
    for run, schedule in ((TIMED, "nightly"), (HOOKED, "hook")):
        at.begin(run, schedule_id=schedule)
        at.end(run)
    due = int((at.runs[TIMED].records[0].at - 1) * 1000)
    turns = {run: run if run in _TASKS else SESSION for run in at.runs}
    return Tasks(
        list(at.runs.values()),
        session_of=turns,
        sessions={SESSION: at.session},
        controls=[Control("apply", TASK_G, 200), Control("reject", TASK_G, 409, "already_decided")],
        fires=[Fire("nightly", TIMED, due), Fire("nightly", SKIPPED, 5, is_skipped=True), Fire("hook", HOOKED)],
        deliveries=[("delivery", HOOKED), ("delivery", HOOKED)],
    )


def _group_with_report(at: _Deployment) -> None:
    at.begin(FIRST)
    at.spawn(FIRST, "1-1", TASK_A, TASK_A, "subagent", name="g")
    at.answer(FIRST, "1-1")
    at.spawn(FIRST, "2-1", TASK_B, TASK_A, "job")
    at.answer(FIRST, "2-1")
    merged = tasks.ResultsMerged(group_id=TASK_A, tasks=[TASK_A])
    at.task_ends(TASK_A, "succeeded", merged, parent=FIRST, call="1-1")
    refused = PlannedCall(call_id="3-1", tool="task.spawn")
    at.run(FIRST, Step(step=3, node="task", status="started", calls=[refused]))
    fault = Fault(code="not_found", reason="there is no such group")
    at.tell(tasks.SpawnRefused(task_id="f" * 32, run=FIRST, fault=fault))
    at.answer(FIRST, "3-1", status="failed")
    at.end(FIRST)
    at.tell(tasks.GroupSealed(group_id=TASK_A, by="run"))
    at.task_ends(TASK_B, "failed", tasks.GroupEnded(group_id=TASK_A, status="complete"))
    at.report(REPORT, TASK_A, [TASK_A], [TASK_B])


def _group_with_waiter(at: _Deployment) -> None:
    at.begin(WAITS)
    at.spawn(WAITS, "1-1", TASK_W, TASK_W, "subagent", name="w")
    at.tell(tasks.GroupSealed(group_id=TASK_W), tasks.WaiterAdded(group_id=TASK_W, run=WAITS, call_id="1-1", until=0))
    ended = tasks.GroupEnded(group_id=TASK_W, status="complete")
    merged = tasks.ResultsMerged(group_id=TASK_W, tasks=[TASK_W])
    released = tasks.WaiterReleased(group_id=TASK_W, run=WAITS, call_id="1-1")
    at.task_ends(TASK_W, "succeeded", merged, ended, released, parent=WAITS, call="1-1")
    at.answer(WAITS, "1-1", observation={"results": [{"task_id": TASK_W}]})
    at.end(WAITS)


def _gated_group(at: _Deployment) -> None:
    at.begin(GATED)
    at.spawn(GATED, "1-1", TASK_G, TASK_G, "job", merge="HUMAN_GATED")
    at.tell(tasks.GroupSealed(group_id=TASK_G))
    at.answer(GATED, "1-1")
    at.end(GATED)
    at.task_ends(TASK_G, "succeeded", tasks.GroupEnded(group_id=TASK_G, status="complete", awaits_decision=True))
    at.tell(tasks.ResultsMerged(group_id=TASK_G, tasks=[TASK_G], by="key"))
    at.report(REPORT_G, TASK_G, [TASK_G])


def _cancelled_run(at: _Deployment) -> None:
    at.begin(STOPPED)
    at.spawn(STOPPED, "1-1", TASK_S, TASK_S, "subagent", name="s")
    at.answer(STOPPED, "1-1")
    at.end(STOPPED, "cancelled")
    at.tell(tasks.GroupSealed(group_id=TASK_S, by="run"), tasks.TasksCancelled(tasks=[TASK_S], by="run"))
    at.task_ends(TASK_S, "cancelled", tasks.GroupEnded(group_id=TASK_S, status="failed"))
