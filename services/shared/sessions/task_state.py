"""The background tasks of a session: what the log of the session says about them.

`Background` is a part of `Session`, so it is in each checkpoint. `fold` keeps it within bounds.
"""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from contracts.sessions import tasks as facts
from contracts.wire.base import Message
from contracts.wire.faults import Fault

SPAWNED_DIGITS = 16
"""Of a task's id, in `Background.spawned`."""


class Task(Message):
    """A background task. Its id is that of its run."""

    task_id: str
    group_id: str
    run: str
    """The run that spawned it."""
    call_id: str
    name: str = ""
    mode: facts.TaskMode = "subagent"
    tool: str | None = None
    query: str = ""
    depth: int = 1
    for_report: facts.Reservation | None = None
    """Limits of the report on it."""
    status: facts.TaskStatusName = "running"
    requested_at: int = 0
    ended_at: int | None = None
    code: str | None = None
    digest: str = ""
    """What it found."""
    is_merged: bool = False
    is_reported: bool = False
    is_cancelling: bool = False
    waits_seq: int = 0
    """Sequence of the record of its run that the newest message about its pauses came from."""

    @property
    def has_result(self) -> bool:
        """Whether it succeeded, at least in part."""
        return self.status in facts.WITH_RESULT

    @property
    def shown_status(self) -> facts.TaskStatusName:
        """Its status for a run that waits: the run of a task that is being cancelled may have yet to end."""
        return "cancelled" if self.is_cancelling and self.status == "running" else self.status


class Waiter(Message):
    """A call that stays open until its group has ended, or until `until`, Unix ms."""

    run: str
    call_id: str
    until: int
    state: Literal["waiting", "answered", "timed_out", "run_ended"] = "waiting"
    """`answered`: its run has all results, which are its report. `run_ended`: before it was answered."""


class Group(Message):
    """A group of tasks, by the id of its first one. `name`: empty for a task that was spawned without a group."""

    group_id: str
    name: str = ""
    run: str = ""
    """The run that made it."""
    status: facts.GroupStatusName = "open"
    report: facts.ReportMode = "all"
    merge: facts.MergeStrategy = "APPEND"
    tasks: list[str] = Field(default_factory=list)
    timeout_at: int | None = None
    waiter: Waiter | None = None
    decision: Literal["applied", "rejected"] | None = None
    is_muted: bool = False
    """It was cancelled, and no report on it follows."""
    report_as: str = ""
    """Key of `Background.report_as`."""
    report_id: str | None = None
    """The newest report."""

    @property
    def has_ended(self) -> bool:
        """Whether it is sealed, and all its tasks have ended."""
        return self.status in {"complete", "failed"}

    @property
    def awaits_decision(self) -> bool:
        """Whether a person has yet to apply or reject its results."""
        return self.status == "complete" and self.merge == "HUMAN_GATED" and self.decision is None

    @property
    def may_show_results(self) -> bool:
        """Whether models may read what its tasks found."""
        return self.merge != "HUMAN_GATED" or self.decision == "applied"

    @property
    def is_waited_for(self) -> bool:
        """Whether a run keeps its turn for it."""
        return self.waiter is not None and self.waiter.state == "waiting"

    @property
    def reports_each(self) -> bool:
        """Whether each of its tasks has a report of its own."""
        return not self.name or self.report == "any"


class Result(Message):
    """What a task found, as later runs of the session are shown it."""

    task_id: str
    group_id: str
    slot: str = ""
    """What REPLACE replaces: results of the same slot."""
    name: str = ""
    status: facts.TaskStatusName = "succeeded"
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
    """All tasks and groups of a session that somebody may still ask for."""

    tasks: dict[str, Task] = Field(default_factory=dict)
    """Oldest first."""
    groups: dict[str, Group] = Field(default_factory=dict)
    """By their last step towards the end (ended, decided, waiter released, report joined), the newest last."""
    results: list[Result] = Field(default_factory=list)
    reports: list[Report] = Field(default_factory=list)
    report_as: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Fields of RunRequested of runs that report, stored once for groups that agree in them."""
    answered: dict[str, Fault | None] = Field(default_factory=dict)
    """Why requests about tasks were refused; null: they were carried out. By id; of a refused spawn, the task's."""
    spawned: dict[str, list[str]] = Field(default_factory=dict)
    """The first 16 digits of the ids of all tasks that each open run has spawned."""

    def open_tasks(self) -> list[Task]:
        """Return the tasks that have not ended."""
        return [task for task in self.tasks.values() if task.status == "running"]

    def tasks_of(self, group: Group) -> list[Task]:
        """Return the tasks of a group."""
        return [self.tasks[task_id] for task_id in group.tasks if task_id in self.tasks]

    def has_spawned(self, run: str, task_id: str) -> bool:
        """Whether a run spawned this task, also where the task is settled and was dropped."""
        return task_id in self.tasks or task_id[:SPAWNED_DIGITS] in self.spawned.get(run, [])

    def is_settled(self, group: Group) -> bool:
        """Whether nobody waits for anything of a group."""
        is_open = not group.has_ended or group.is_waited_for or group.awaits_decision
        return not is_open and all(report.group_id != group.group_id for report in self.reports)

    def settled_groups(self) -> list[Group]:
        """Return the settled groups, those first that have been settled for the longest time."""
        return [group for group in self.groups.values() if self.is_settled(group)]

    @model_serializer(mode="wrap")
    def _compact(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what the keys and the tasks say: with a thousand tasks, ids are half of a checkpoint."""
        data: dict[str, Any] = serialise(self)
        for task_id, task in data.get("tasks", {}).items():
            del task["task_id"]
            if task["group_id"] == task_id:
                del task["group_id"]
        for group_id, group in data.get("groups", {}).items():
            del group["group_id"]
            group.pop("tasks", None)
            if group_id in self.tasks:
                group.pop("run", None)
        return data

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Put back what `_compact` left out."""
        if not isinstance(data, dict):
            return data
        tasks, groups = data.get("tasks", {}), data.get("groups", {})
        if any(isinstance(each, Message) for each in (*tasks.values(), *groups.values())):
            return data
        tasks = {key: {"task_id": key, "group_id": key, **task} for key, task in tasks.items()}
        members: dict[str, list[str]] = {}
        for key, task in tasks.items():
            members.setdefault(task["group_id"], []).append(key)
        groups = {
            key: {"group_id": key, "run": tasks.get(key, {}).get("run", ""), "tasks": members.get(key, []), **group}
            for key, group in groups.items()
        }
        return {**data, "tasks": tasks, "groups": groups}
