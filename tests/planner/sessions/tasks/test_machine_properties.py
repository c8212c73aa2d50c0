"""Any order and repetition of messages: each transition once, each group reported once, no result lost."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.sessions.records import KnownSessionEvent
from contracts.sessions.tasks import WITH_RESULT, SessionGroupDue, TaskControlAction
from services.planner.sessions.tasks import commands
from services.planner.sessions.tasks.reports import report_request
from services.shared.sessions.fold import checkpoint, fold
from services.shared.sessions.state import Session
from services.shared.sessions.task_state import Group
from tests.planner.sessions.tasks.session_world import TOLD, World, control, ended, request, run_id, spawned

RUNS = ("r", "q")
TASKS = tuple(f"t{number}" for number in range(7))
NAMES = {run_id(name): name for name in (*RUNS, *TASKS)}
SPAWNS: tuple[dict[str, Any], ...] = (
    {},
    {"merge_strategy": "HUMAN_GATED"},
    {"merge_strategy": "REPLACE", "group_report": "none"},
    {"retain_turn": True},
    {"group": "g"},
    {"group": "g", "group_report": "any"},
    {"group": "g", "merge_strategy": "HUMAN_GATED"},
    {"group": "g", "merge_strategy": "HUMAN_GATED", "group_report": "any"},
    {"group": "g", "group_sealed": True},
    {"group": "g", "retain_turn": True},
    {"group": "g", "retain_turn": True, "merge_strategy": "HUMAN_GATED"},
    {"group_id": run_id("t0")},
)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 997)), max_size=30)


@dataclass
class Story:
    """A session to which anything may happen."""

    world: World = field(default_factory=World)
    taken: list[Any] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    """Reports whose context is kept."""

    def take(self, cause: Any) -> None:
        """Handle a message, twice; check that what it leads to is commanded, and that the second time is the same."""
        before = len(self.world.written)
        self.world.take(cause)
        first = self.world.commands
        self.check(self.world.written[before:], first)
        self.taken.append(cause)
        assert self.world.take(cause) == []
        assert self.world.commands == first

    def check(self, events: list[KnownSessionEvent], found: list[Any]) -> None:
        """Each event that calls for a command has one."""
        for each in found:
            if isinstance(each, commands.StartTask) and each.report_id is not None:
                self.kept.add(each.report_id)
            if isinstance(each, commands.DropReportContext):
                self.kept.discard(each.report_id)
        for event in events:
            match event.type:
                case "task_spawned":
                    assert any(
                        isinstance(each, commands.StartTask) and each.request.run_id == event.task_id for each in found
                    )
                case "tasks_cancelled":
                    cancelled = {each.task_id for each in found if isinstance(each, commands.CancelTask)}
                    assert set(event.tasks) <= cancelled
                case "reported":
                    requested = {each.report.report_id for each in found if isinstance(each, commands.RequestReport)}
                    assert event.report_id in requested
                case "waiter_released" if event.is_answered:
                    calls = {each.finished.call_id for each in found if isinstance(each, commands.AnswerCall)}
                    assert event.call_id in calls
                case "task_ended":
                    parent = self.world.session.background.tasks[event.task_id].run
                    is_settled = any(
                        isinstance(each, commands.TellRun) and each.name.startswith("task_settled") for each in found
                    )
                    assert is_settled == self.world.session.is_open(parent)
                case _:
                    pass

    def possible(self, kind: int) -> list[Any]:
        """The messages of a kind that may come now."""
        session = self.world.session
        background = session.background
        new_runs = [run for run in RUNS if session.recent_run(run_id(run)) is None and not session.is_open(run_id(run))]
        open_runs = [run for run in (*RUNS, *TASKS) if session.is_open(run_id(run))]
        new_task = next((task for task in TASKS if run_id(task) not in {each.task_id for each in self.spawned()}), None)
        running = [NAMES[task.task_id] for task in background.open_tasks()]
        number = len(self.taken)
        match kind:
            case 0:
                return [request(run) for run in new_runs]
            case 1 | 2:
                return [spawned(run, new_task, **each) for run in open_runs for each in SPAWNS] if new_task else []
            case 3:
                ends = [ended(task, outcome) for task in running for outcome in ("done", "done", "error", "cancelled")]
                return [*ends, *(ended(task, answer="") for task in running)]
            case 4:
                turns = [run for run in RUNS if session.is_open(run_id(run))]
                return [ended(run, outcome) for run in turns for outcome in ("done", "error", "cancelled")]
            case 5:
                return [
                    control(action, task=target.get("task"), group=target.get("group"), id_=f"{number}")
                    for action in ("seal", "cancel", "apply", "reject")
                    for target in [*({"task": task} for task in TASKS), *({"group": task} for task in TASKS)]
                ]
            case 6:
                dues = [SessionGroupDue(group_id=each, what="group") for each in background.groups]
                waited = [each for each, group in background.groups.items() if group.waiter is not None]
                return [*dues, *(SessionGroupDue(group_id=each, what="waiter") for each in waited)]
            case 7:
                return [*self.reports(), *self.decisions("apply"), *self.decisions("reject")]
            case _:
                return [spawned(run, new_task, group="g") for run in open_runs] if new_task else []

    def spawned(self) -> list[Any]:
        return self.world.of("task_spawned")

    def reports(self) -> Iterator[Any]:
        """The requests of reports that have not joined the session, and the ends of those that have."""
        session = self.world.session
        for report in session.background.reports:
            yield report_request("default", session, report)
        for event in self.world.of("reported"):
            if session.is_open(event.report_id):
                message = ended("report")
                yield message.model_copy(
                    update={"ended": message.ended.model_copy(update={"run": event.report_id}), "cause": "report"}
                )

    def decisions(self, action: TaskControlAction) -> Iterator[Any]:
        for group in self.world.session.background.groups.values():
            if group.awaits_decision:
                message = control(action, id_=f"{action} {group.group_id}")
                of_group = {"group_id": group.group_id} if group.name else {"task_id": group.group_id}
                yield message.model_copy(update=of_group)

    def redeliver(self, choice: int) -> None:
        """A message of any time comes again: it changes nothing."""
        if self.taken:
            cause = self.taken[choice % len(self.taken)]
            assert self.world.take(cause) == []
            if isinstance(cause, TOLD):
                assert commands.commands(self.world.session, cause) == self.world.commands

    def finish(self) -> None:
        """Let everything end: runs, tasks, decisions and reports."""
        for kind in (4, 3):
            while found := self.possible(kind):
                self.take(found[0])
        for message in list(self.decisions("apply" if len(self.taken) % 2 else "reject")):
            self.take(message)
        while found := list(self.reports()):
            self.take(found[0])


def _story(steps: list[tuple[int, int]]) -> Story:
    story = Story()
    story.take(request("r"))
    for kind, choice in steps:
        if choice % 5 == 0:
            story.redeliver(choice // 5)
        elif found := story.possible(kind):
            story.take(found[choice % len(found)])
    return story


ONCE = {
    "group_opened": "group_id",
    "task_spawned": "task_id",
    "waiter_added": "group_id",
    "waiter_released": "group_id",
    "group_sealed": "group_id",
    "task_ended": "task_id",
    "group_ended": "group_id",
    "results_rejected": "group_id",
    "reported": "report_id",
    "task_control_done": "id",
    "task_control_refused": "id",
}
"""Events of which there is at most one for each value of a field."""


@given(STEPS)
def test_whatever_is_repeated_all_happens_once_and_no_result_is_lost(steps: list[tuple[int, int]]) -> None:
    """Every transition; and each group is reported when that is due."""
    story = _story(steps)
    story.finish()
    for kind, key in ONCE.items():
        counted = Counter(getattr(event, key) for event in story.world.of(kind))
        assert set(counted.values()) <= {1}, kind
    background, reported = story.world.session.background, story.world.of("reported")
    assert (background.open_tasks(), background.reports) == ([], [])
    for group in background.groups.values():
        assert group.has_ended
        of_group = [event for event in reported if event.group_id == group.group_id]
        names = [task for event in of_group for task in [*event.tasks, *event.failed]]
        if _gets_none(story, group):
            assert not of_group or (group.report == "any" and group.name), "some of its tasks were reported before"
            assert max(Counter(names).values(), default=1) == 1
        else:
            assert sorted(names) == sorted(group.tasks)
            assert len(of_group) == (len(group.tasks) if group.reports_each else 1)
    assert story.kept <= {each.report_id for each in reported}, "the context of a report that does not come is dropped"
    merged = [task for event in story.world.of("results_merged") for task in event.tasks]
    rejected = {event.group_id for event in story.world.of("results_rejected")}
    assert sorted(merged) == sorted(
        event.task_id
        for event in story.world.of("task_ended")
        if event.outcome in WITH_RESULT and background.tasks[event.task_id].group_id not in rejected
    )


def _gets_none(story: Story, group: Group) -> bool:
    """Whether no report is due on a group, by what was written."""
    muted = {task for event in story.world.of("tasks_cancelled") if not event.is_reported for task in event.tasks}
    answered = {
        event.group_id for event in story.world.of("waiter_released") if event.is_answered and not event.timed_out
    }
    rejected = {event.group_id for event in story.world.of("results_rejected")}
    is_muted = bool(muted & set(group.tasks)) and (group.is_muted or not group.name)
    return group.report == "none" or is_muted or group.group_id in answered | rejected


@given(STEPS)
def test_a_checkpoint_is_the_fold_of_the_log(steps: list[tuple[int, int]]) -> None:
    """Of all records, and of those after any checkpoint."""
    world = _story(steps).world
    folded = Session()
    for seq, record in enumerate(world.records, 1):
        folded = fold(folded, seq, record)
        event = checkpoint(folded)
        assert event is not None
        assert Session.model_validate_json(json.dumps(event.state)) == folded
    assert folded == world.session
