"""The background tasks of a session, as the fold of their events. Pure: no clock, no await.

`Background` is a part of `Session`, so it is in each checkpoint, and bounded: open tasks as many as the agents' limits
allow, the newest 100 groups that are done with, 64 KiB of results that later runs are shown, and 128 KiB of results
that wait for a report or a person. A longer one is cut, with a mark: the whole one is in the payload of the task's run.
"""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from contracts.base import Message
from contracts.faults import Fault
from contracts.tasks import (
    GroupEnded,
    GroupOpened,
    GroupSealed,
    GroupStatusName,
    MergeStrategy,
    Reported,
    ReportMode,
    ResultsMerged,
    ResultsRejected,
    SpawnRefused,
    TaskEnded,
    TaskMode,
    TasksCancelled,
    TaskSpawned,
    TaskStatusName,
    WaiterAdded,
    WaiterReleased,
)


class Task(Message):
    """A background task. Its id is that of its run."""

    task_id: str
    group_id: str
    run: str
    """The run that spawned it."""
    call_id: str
    name: str = ""
    mode: TaskMode = "subagent"
    tool: str | None = None
    query: str = ""
    depth: int = 1
    status: TaskStatusName = "running"
    requested_at: int = 0
    ended_at: int | None = None
    code: str | None = None
    digest: str = ""
    """What it found. Empty once nobody waits for it any more."""
    is_merged: bool = False
    is_cancelling: bool = False


class Waiter(Message):
    """A call that stays open until its group has ended, or until `until`, Unix ms."""

    run: str
    call_id: str
    until: int


class Group(Message):
    """A group of tasks, by the id of its first one. `name`: empty for a task that was spawned without a group."""

    group_id: str
    name: str = ""
    run: str = ""
    """The run that made it."""
    status: GroupStatusName = "open"
    report: ReportMode = "all"
    merge: MergeStrategy = "APPEND"
    tasks: list[str] = Field(default_factory=list)
    timeout_at: int | None = None
    waiter: Waiter | None = None
    has_answered_waiter: bool = False
    """The run that waited has all results, which are its report."""
    decision: Literal["applied", "rejected"] | None = None
    report_as: dict[str, Any] = Field(default_factory=dict)
    reported: list[str] = Field(default_factory=list)
    """Tasks that a report named, and that ended before."""
    report_id: str | None = None
    """The newest report."""


class Result(Message):
    """What a task found, as later runs of the session are shown it."""

    task_id: str
    group_id: str
    slot: str = ""
    """What REPLACE replaces: results of the same slot."""
    name: str = ""
    digest: str


class Report(Message):
    """A report whose run has not joined the session yet."""

    report_id: str
    group_id: str
    tasks: list[str]
    """Failed ones included."""
    at: int = 0
    """Unix ms."""


class Background(Message):
    """All tasks and groups of a session that somebody may still ask for, oldest first."""

    tasks: dict[str, Task] = Field(default_factory=dict)
    groups: dict[str, Group] = Field(default_factory=dict)
    results: list[Result] = Field(default_factory=list)
    reports: list[Report] = Field(default_factory=list)
    refused: dict[str, Fault] = Field(default_factory=dict)
    """Spawns that were refused, by the id of the task that would have been, as long as the run that asked is open."""
    spawned: dict[str, int] = Field(default_factory=dict)
    """How many tasks each open run has spawned."""

    def open_tasks(self) -> list[Task]:
        """Return the tasks that have not ended."""
        return [task for task in self.tasks.values() if task.status == "running"]


def fold(background: Background, event: Any, at: int) -> Background:
    """Return the tasks after an event. `at`: time of its record, Unix ms."""
    take = _FOLDS.get(event.type)
    return background if take is None else take(background, event, at)


def _with(background: Background, **changes: object) -> Background:
    return background.model_copy(update=changes)


def _with_group(background: Background, group_id: str, **changes: object) -> Background:
    group = background.groups.get(group_id)
    if group is None:
        return background
    return _with(background, groups={**background.groups, group_id: group.model_copy(update=changes)})


def _with_task(background: Background, task_id: str, **changes: object) -> Background:
    task = background.tasks.get(task_id)
    if task is None:
        return background
    return _with(background, tasks={**background.tasks, task_id: task.model_copy(update=changes)})


def _opened(background: Background, event: GroupOpened, _at: int) -> Background:
    group = Group.model_validate(event.model_dump(include=set(Group.model_fields)))
    return _with(background, groups={**background.groups, group.group_id: group})


def _spawned(background: Background, event: TaskSpawned, _at: int) -> Background:
    task = Task.model_validate(event.model_dump(include=set(Task.model_fields)))
    group = background.groups.get(task.group_id)
    background = _with(
        background,
        tasks={**background.tasks, task.task_id: task},
        spawned={**background.spawned, task.run: background.spawned.get(task.run, 0) + 1},
    )
    return background if group is None else _with_group(background, task.group_id, tasks=[*group.tasks, task.task_id])


def _waiter_added(background: Background, event: WaiterAdded, _at: int) -> Background:
    waiter = Waiter(run=event.run, call_id=event.call_id, until=event.until)
    return _with_group(background, event.group_id, waiter=waiter)


def _waiter_released(background: Background, event: WaiterReleased, _at: int) -> Background:
    return _with_group(background, event.group_id, waiter=None, has_answered_waiter=not event.timed_out)


def _refused(background: Background, event: SpawnRefused, _at: int) -> Background:
    return _with(background, refused={**background.refused, event.task_id: event.fault})


def _sealed(background: Background, event: GroupSealed, _at: int) -> Background:
    return _with_group(background, event.group_id, status="sealed")


def _task_ended(background: Background, event: TaskEnded, at: int) -> Background:
    changes: dict[str, object] = {
        "status": event.outcome,
        "ended_at": at,
        "code": event.code,
        "digest": event.digest,
        "is_cancelling": False,
    }
    return _with_task(background, event.task_id, **changes)


def _cancelled(background: Background, event: TasksCancelled, _at: int) -> Background:
    for task_id in event.tasks:
        background = _with_task(background, task_id, is_cancelling=True)
    return background


def _group_ended(background: Background, event: GroupEnded, _at: int) -> Background:
    return _with_group(background, event.group_id, status=event.status)


def _merged(background: Background, event: ResultsMerged, _at: int) -> Background:
    group = background.groups.get(event.group_id)
    if group is None:
        return background
    slot = "" if group.merge != "REPLACE" else f"group {group.group_id}" if group.name else "ungrouped"
    results = [each for each in background.results if not slot or each.slot != slot]
    for task_id in event.tasks:
        task = background.tasks.get(task_id)
        if task is None:
            continue
        if slot:
            results = [each for each in results if each.slot != slot]
        results.append(Result(task_id=task_id, group_id=group.group_id, slot=slot, name=task.name, digest=task.digest))
        background = _with_task(background, task_id, is_merged=True)
    decision = {"decision": "applied"} if group.merge == "HUMAN_GATED" else {}
    return _with_group(_with(background, results=results), event.group_id, **decision)


def _rejected(background: Background, event: ResultsRejected, _at: int) -> Background:
    return _with_group(background, event.group_id, decision="rejected")


def _reported(background: Background, event: Reported, at: int) -> Background:
    group = background.groups.get(event.group_id)
    named = [*event.tasks, *event.failed]
    reported = [*(group.reported if group is not None else []), *named]
    background = _with_group(background, event.group_id, report_id=event.report_id, reported=reported)
    report = Report(report_id=event.report_id, group_id=event.group_id, tasks=named, at=at)
    return _with(background, reports=[*background.reports, report])


_FOLDS: dict[str, Callable[[Background, Any, int], Background]] = {
    "group_opened": _opened,
    "task_spawned": _spawned,
    "waiter_added": _waiter_added,
    "waiter_released": _waiter_released,
    "spawn_refused": _refused,
    "group_sealed": _sealed,
    "task_ended": _task_ended,
    "tasks_cancelled": _cancelled,
    "group_ended": _group_ended,
    "results_merged": _merged,
    "results_rejected": _rejected,
    "reported": _reported,
}
