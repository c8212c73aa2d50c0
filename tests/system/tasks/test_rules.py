"""The rules find nothing in a sound storm, and each of them notices its own kind of wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from contracts.runs.payload import Usage
from contracts.runs.requests import RunCause, RunRequested
from contracts.runs.step_events import Observed, PlannedCall, Step
from contracts.sessions import tasks
from contracts.sessions.records import RunBegun, RunEnded, RunQueued, SessionStarted
from contracts.sessions.tasks import TaskPolicy
from contracts.wire.base import Message
from contracts.wire.faults import Fault
from tests.system.conversations.evidence import Conversations
from tests.system.tasks.evidence import Control, Fire, TaskStorm
from tests.system.tasks.rules import RULES, judge
from tests.system.traces import Event, Evidence, RunEvidence, StoredRecord

#: A rule is trusted by those who change it; `make chaos` proves each with its mutants.
pytestmark = pytest.mark.chaos

FIRST, WAITS, GATED, STOPPED = ("1" * 32, "2" * 32, "3" * 32, "4" * 32)
TASK_A, TASK_B, TASK_W, TASK_G, TASK_S = ("a" * 32, "b" * 32, "c" * 32, "d" * 32, "e" * 32)
REPORT, REPORT_G, TIMED, HOOKED, SKIPPED = ("5" * 32, "6" * 32, "7" * 32, "8" * 32, "9" * 32)
SESSION = "s"
_CONTEXT = "carries_the_callers_context"
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
        """A run ends, and its session knows."""
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


def sound() -> TaskStorm:
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
    return TaskStorm(
        Conversations(Evidence(list(at.runs.values())), turns, {SESSION: at.session}),
        [Control("apply", TASK_G, 200), Control("reject", TASK_G, 409, "already_decided")],
        [Fire("nightly", TIMED, due), Fire("nightly", SKIPPED, 5, is_skipped=True), Fire("hook", HOOKED)],
        [("delivery", HOOKED), ("delivery", HOOKED)],
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


def _places(storm: TaskStorm, kind: str, **fields: Any) -> list[tuple[list[Event], Event]]:
    """The events of a type with these fields, in all logs, each with its record's events."""
    records = [*storm.talks.sessions[SESSION], *(r for run in storm.talks.of_runs.runs for r in run.records)]
    return [
        (record.events, event)
        for record in records
        for event in record.events
        if event["type"] == kind and fields.items() <= event.items()
    ]


def _twice(kind: str, **fields: Any) -> Callable[[TaskStorm], None]:
    def mutant(storm: TaskStorm) -> None:
        events, event = _places(storm, kind, **fields)[0]
        events.append(event)

    return mutant


def _lost(kind: str, **fields: Any) -> Callable[[TaskStorm], None]:
    def mutant(storm: TaskStorm) -> None:
        for events, event in _places(storm, kind, **fields):
            events.remove(event)

    return mutant


def _changed(kind: str, field: str, value: Any, **fields: Any) -> Callable[[TaskStorm], None]:
    def mutant(storm: TaskStorm) -> None:
        _places(storm, kind, **fields)[0][1][field] = value

    return mutant


def _without_run(run: str) -> Callable[[TaskStorm], None]:
    def mutant(storm: TaskStorm) -> None:
        storm.talks.of_runs.runs = [each for each in storm.talks.of_runs.runs if each.run_id != run]

    return mutant


def _second_report(storm: TaskStorm) -> None:
    events, event = _places(storm, "reported", report_id=REPORT)[0]
    events.append({**event, "report_id": "0" * 32})


def _report_for_the_waiter(storm: TaskStorm) -> None:
    events, event = _places(storm, "waiter_released")[0]
    events.append(_dump(tasks.Reported(report_id="0" * 32, group_id=event["group_id"], kind="group", tasks=[TASK_W])))


def _applied_without_a_person(storm: TaskStorm) -> None:
    storm.controls.clear()


def _rejected_for_nothing(storm: TaskStorm) -> None:
    storm.controls[1].status = 200


def _smaller_limit(storm: TaskStorm) -> None:
    _places(storm, "run_started", run_id=FIRST)[0][1]["limits"]["max_tokens"] = 300


def _large_part(storm: TaskStorm) -> None:
    _places(storm, "step", node="task")[0][1]["calls"][0]["set_aside"]["max_tokens"] = 5


def _spent_less(storm: TaskStorm) -> None:
    _places(storm, "task_settled")[0][1]["spent"]["prompt_tokens"] = 1


def _other_parent(storm: TaskStorm) -> None:
    _places(storm, "run_started", run_id=TASK_A)[0][1]["request"]["parent"] = GATED


def _refused_and_spawned(storm: TaskStorm) -> None:
    _places(storm, "observed", call_id="1-1")[0][1]["status"] = "failed"


def _result_of_nobody(storm: TaskStorm) -> None:
    _places(storm, "run_started", run_id=REPORT)[0][1]["request"]["llm_context"] = {}


def _answer_without_results(storm: TaskStorm) -> None:
    _places(storm, "observed", call_id="1-1", observation={"results": [{"task_id": TASK_W}]})[0][1]["observation"] = {}


def _too_late(storm: TaskStorm) -> None:
    fire = storm.fires[0]
    storm.fires[0] = Fire(fire.schedule, fire.run, (fire.at or 0) + 5000)


def _unforeseen(storm: TaskStorm) -> None:
    del storm.fires[0]


def _missed_and_run(storm: TaskStorm) -> None:
    storm.fires[0].is_skipped = True


def _context_of_nobody(storm: TaskStorm) -> None:
    storm.contexts.add("0" * 32)


def _two_runs_of_a_delivery(storm: TaskStorm) -> None:
    storm.deliveries.append(("delivery", TIMED))


MUTANTS: dict[str, tuple[Callable[[TaskStorm], None], str]] = {
    "task ended twice": (_twice("task_ended", task_id=TASK_A), "changes_each_state_once"),
    "group sealed twice": (_twice("group_sealed", group_id=TASK_W), "changes_each_state_once"),
    "group never ended": (_lost("group_ended", group_id=TASK_A), "changes_each_state_once"),
    "merged twice": (_twice("results_merged", group_id=TASK_A), "changes_each_state_once"),
    "group opened never": (_lost("group_opened", group_id=TASK_A), "changes_each_state_once"),
    "status": (_changed("group_ended", "status", "failed", group_id=TASK_A), "changes_each_state_once"),
    "applied without a person": (_applied_without_a_person, "decides_each_group_once"),
    "two decisions": (_rejected_for_nothing, "decides_each_group_once"),
    "report twice": (_twice("reported", report_id=REPORT), "reports_each_due_group_once"),
    "second report": (_second_report, "reports_each_due_group_once"),
    "lost report": (_lost("reported", report_id=REPORT), "reports_each_due_group_once"),
    "failed task left out": (_changed("reported", "failed", [], report_id=REPORT), "reports_each_due_group_once"),
    "report for the waiter": (_report_for_the_waiter, "reports_each_due_group_once"),
    "report without a decision": (_lost("results_merged", group_id=TASK_G), "reports_each_due_group_once"),
    "report without a run": (_without_run(REPORT), "begins_each_report_once"),
    "report begun twice": (_twice("run_begun", run=REPORT), "begins_each_report_once"),
    "report never begun": (_lost("run_begun", run=REPORT), "begins_each_report_once"),
    "report of nobody": (_lost("reported", report_id=REPORT_G), "begins_each_report_once"),
    "result nowhere": (_lost("results_merged", group_id=TASK_A), "loses_no_result"),
    "report without the result": (_result_of_nobody, "loses_no_result"),
    "answer without the result": (_answer_without_results, "loses_no_result"),
    "waiter released twice": (_twice("waiter_released"), "releases_each_waiter_once"),
    "waiter never released": (_lost("waiter_released"), "releases_each_waiter_once"),
    "task of a cancelled run": (_lost("tasks_cancelled"), "ends_tasks_of_cancelled_runs"),
    "task without a run": (_without_run(TASK_A), "runs_each_task_once"),
    "task started twice": (_twice("run_started", run_id=TASK_A), "runs_each_task_once"),
    "another parent": (_other_parent, "runs_each_task_once"),
    "another outcome": (_changed("task_ended", "outcome", "failed", task_id=TASK_A), "runs_each_task_once"),
    "run of no task": (_lost("task_spawned", task_id=TASK_B), "runs_each_task_once"),
    "answered twice": (_twice("observed", call_id="1-1"), "answers_each_spawn_once"),
    "never answered": (_lost("observed", call_id="2-1"), "answers_each_spawn_once"),
    "refused and spawned": (_refused_and_spawned, "answers_each_spawn_once"),
    "nobody agreed": (_lost("resumed", pause_id=f"{'2-1':>032}"), "asks_before_it_spawns"),
    "spent too much": (_large_part, "keeps_to_what_was_set_aside"),
    "set aside too much": (_smaller_limit, "never_sets_aside_more_than_is_left"),
    "settled twice": (_twice("task_settled"), "never_sets_aside_more_than_is_left"),
    "told another sum": (_spent_less, "gives_back_what_was_not_spent"),
    "report without context": (_changed("run_started", "has_tool_context", 0, run_id=REPORT), _CONTEXT),
    "context of nobody": (_context_of_nobody, _CONTEXT),
    "fired too early": (_too_late, "fires_each_schedule_once"),
    "never fired": (_without_run(TIMED), "fires_each_schedule_once"),
    "fired unforeseen": (_unforeseen, "fires_each_schedule_once"),
    "skipped and fired": (_missed_and_run, "fires_each_schedule_once"),
    "delivered twice, run twice": (_two_runs_of_a_delivery, "takes_each_delivery_once"),
}


def test_nothing_is_found_in_a_sound_storm() -> None:
    """So that a complaint means something."""
    assert judge(sound()) == {}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_kind_of_wrong_is_noticed(name: str) -> None:
    """By the rule that is meant for it."""
    mutant, rule = MUTANTS[name]
    found = sound()
    mutant(found)
    assert rule in judge(found)


def test_every_rule_has_a_mutant() -> None:
    """A rule without one may notice nothing."""
    assert {rule for _, rule in MUTANTS.values()} == set(RULES)
