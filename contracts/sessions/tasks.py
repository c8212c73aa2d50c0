"""Background tasks of a session: their records on the session's log, messages about them, and what HTTP shows.

A task is a run of its own: a `subagent` plans, a `job` makes one call of a tool. Its id is that of its run. Every task
is in a group. A task that was spawned without one is alone in a group without a name, which is sealed at once. A group
bears the id of its first task.

Rule 1: a run asks for tasks by calls of its own log (`TASK_TOOLS`). Its session answers them as tools do, with
`call_finished`.
Rule 2: what a task found (`digest`) is untrusted data, like every tool's result.
"""

from typing import Any, Literal, get_args

from pydantic import Field

from ..runs.payload import Usage
from ..runs.requests import RunRequested
from ..wire.base import Message, is_absent
from ..wire.faults import Fault

TaskMode = Literal["subagent", "job"]
MergeStrategy = Literal["APPEND", "REPLACE", "HUMAN_GATED"]
"""Where a result goes: to the session's results; in the place of what its group, or the task before it, left there; or
nowhere until a person applies it."""
ReportMode = Literal["all", "any", "none"]
"""`all`: one report for the group. `any`: one for each task. `none`: no report."""
TaskOutcome = Literal["succeeded", "partial", "failed", "cancelled"]
"""`partial`: it ran out of its share of the budget, and has an answer."""
TaskStatusName = Literal["running", "succeeded", "partial", "failed", "cancelled"]
WITH_RESULT = frozenset({"succeeded", "partial"})
"""How a task ends that has a result."""
GroupStatusName = Literal["open", "sealed", "complete", "failed"]
"""`complete`: it is sealed, all its tasks have ended, and one has a result. `failed`: none has."""
TaskAction = Literal["spawn", "list", "status", "seal", "cancel", "apply", "reject"]
TaskControlAction = Literal["seal", "cancel", "apply", "reject"]

TASK_TOOLS: dict[str, TaskAction] = {
    "task.spawn": "spawn",
    "tasks.list": "list",
    "tasks.status": "status",
    "tasks.seal": "seal",
    "tasks.cancel": "cancel",
    "tasks.apply": "apply",
    "tasks.reject": "reject",
}
"""Name of the call in a run's log -> what the session is asked for. No tool has a name with a dot. A model writes
`task`, and `tasks_list` for `tasks.list`."""

MAX_DIGEST_BYTES = 8 * 1024
"""Longest result of a task that a session keeps; the whole one is in the payload of the task's run."""


class TaskPolicy(Message):
    """What runs of an agent may do in the background, and the settings of tasks that name none."""

    spawn_requires_confirmation: bool | None = Field(
        default=None, description="whether a person is asked before a task is spawned; null: yes"
    )
    max_open: int = Field(default=32, ge=1, le=1000, description="tasks of a session that may go on at once")
    max_per_run: int = Field(default=32, ge=1, le=1000, description="tasks that one run may spawn in all")
    max_depth: int = Field(default=2, ge=1, le=8, description="1: tasks may not spawn tasks; 2: theirs may not")
    max_hops: int = Field(
        default=1, ge=0, le=8, description="reports in a row: a run that reports on tasks of a report, and so on"
    )
    budget_share: float = Field(
        default=0.25, gt=0, le=1, description="part of what is left of a run's tokens, money and calls, for each task"
    )
    task_timeout_s: float = Field(default=3600, gt=0, le=31_536_000, description="the deadline of a task's run")
    group_timeout_s: float = Field(
        default=7200, gt=0, le=31_536_000, description="then a group's open tasks are cancelled"
    )
    retain_timeout_s: float = Field(
        default=300, gt=0, le=31_536_000, description="how long a run waits for tasks with `retain_turn`"
    )
    merge_strategy: MergeStrategy = Field(
        default="APPEND", description="of tasks that name none; `HUMAN_GATED`: of all tasks"
    )
    group_report: ReportMode = Field(default="all", description="of tasks that name none")
    agents: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=is_absent,
        description="other agents that its runs may ask (`run_agent`), each with its description",
    )


class Reservation(Message):
    """What a run sets aside of its own limits for a task. Null: the run has no such limit."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_tool_calls: int | None = None


class GroupOpened(Message):
    """A group was made, with the settings of the spawn that made it."""

    type: Literal["group_opened"] = "group_opened"
    group_id: str
    name: str = Field(default="", description="empty: of a task that was spawned without a group")
    run: str = Field(description="the run that made it. Only its own further tasks join by the name")
    report: ReportMode = "all"
    merge: MergeStrategy = "APPEND"
    timeout_at: int | None = Field(default=None, description="Unix ms")
    report_as: dict[str, Any] = Field(
        default_factory=dict, description="fields of RunRequested of a run that reports on the group"
    )


class TaskSpawned(Message):
    """A task was spawned. Its run is requested next."""

    type: Literal["task_spawned"] = "task_spawned"
    task_id: str = Field(description="the id of its run")
    group_id: str
    run: str = Field(description="the run that spawned it")
    call_id: str = Field(description="the call of that run")
    name: str = ""
    mode: TaskMode
    tool: str | None = Field(default=None, description="of a job")
    query: str = Field(default="", description="of a subagent: its beginning, at most 200 bytes")
    depth: int = 1
    for_report: Reservation | None = Field(
        default=None, description="kept of what was set aside for the task: the limits of the report on it"
    )
    requested_at: int = 0


class WaiterAdded(Message):
    """The run that spawned a task keeps its turn until the task's group has ended, or until `until`."""

    type: Literal["waiter_added"] = "waiter_added"
    group_id: str
    run: str
    call_id: str
    until: int = Field(description="Unix ms")


class WaiterReleased(Message):
    """A waiting run has its answer."""

    type: Literal["waiter_released"] = "waiter_released"
    group_id: str
    run: str
    call_id: str
    timed_out: bool = False
    is_answered: bool = Field(default=True, description="false: the run had ended, so nobody has the results")


class SpawnRefused(Message):
    """A task was not spawned. `task_id`: the one that it would have."""

    type: Literal["spawn_refused"] = "spawn_refused"
    task_id: str
    run: str
    fault: Fault


class GroupSealed(Message):
    """No task may join the group any more."""

    type: Literal["group_sealed"] = "group_sealed"
    group_id: str
    by: str = Field(default="", description="`spawn`, `run` (its turn ended), `model`, `timer`, or `person`")


class TaskEnded(Message):
    """A task's run ended. `digest`: what it found, at most 8 KiB."""

    type: Literal["task_ended"] = "task_ended"
    task_id: str
    outcome: TaskOutcome
    code: str | None = None
    digest: str = ""
    spent: Usage = Field(
        default=Usage(), description="by its run, set aside for tasks that go on, and kept for the report"
    )
    usage: Usage = Field(default=Usage(), description="by its run alone")


class TasksCancelled(Message):
    """These tasks are being cancelled."""

    type: Literal["tasks_cancelled"] = "tasks_cancelled"
    tasks: list[str]
    by: str = Field(default="", description="`model`, `timer`, `run` (theirs was cancelled), or the id of the API key")
    is_reported: bool = Field(default=True, description="false: no report on their groups follows")


class GroupEnded(Message):
    """A group is sealed, and all its tasks have ended."""

    type: Literal["group_ended"] = "group_ended"
    group_id: str
    status: Literal["complete", "failed"]
    awaits_decision: bool = Field(default=False, description="a person applies or rejects its results (`HUMAN_GATED`)")


class ResultsMerged(Message):
    """Later runs of the session are shown the results of these tasks."""

    type: Literal["results_merged"] = "results_merged"
    group_id: str
    tasks: list[str]
    by: str = Field(default="", description="of a decision: the id of the API key; empty: no decision was needed")


class ResultsRejected(Message):
    """A person rejected the held results of a group. No run is shown them."""

    type: Literal["results_rejected"] = "results_rejected"
    group_id: str
    by: str = ""


class Reported(Message):
    """A run is requested that tells the user about ended tasks."""

    type: Literal["reported"] = "reported"
    report_id: str = Field(description="the id of that run")
    group_id: str
    kind: Literal["group", "task"]
    tasks: list[str]
    failed: list[str] = Field(default_factory=list)


class TaskControlDone(Message):
    """A request about a task or group was carried out, or had been before."""

    type: Literal["task_control_done"] = "task_control_done"
    id: str = Field(description="of SessionTaskControl; of a run's call `<run>/<call_id>`")


class TaskControlRefused(Message):
    """A request about a task or group changed nothing."""

    type: Literal["task_control_refused"] = "task_control_refused"
    id: str = Field(description="of SessionTaskControl; of a run's call `<run>/<call_id>`")
    fault: Fault


TaskEvent = (
    GroupOpened
    | TaskSpawned
    | WaiterAdded
    | WaiterReleased
    | SpawnRefused
    | GroupSealed
    | TaskEnded
    | TasksCancelled
    | GroupEnded
    | ResultsMerged
    | ResultsRejected
    | Reported
    | TaskControlDone
    | TaskControlRefused
)
TASK_EVENT_TYPES = frozenset(str(event.model_fields["type"].default) for event in get_args(TaskEvent))


class SessionTaskCalled(Message):
    """A run calls for something about tasks. Its planner has the session handle this itself: no stream holds it."""

    session_id: str
    run: str
    call_id: str
    action: TaskAction
    args: dict[str, Any] = Field(default_factory=dict, description="as the model gave them, checked")
    policy: TaskPolicy
    at: int = Field(description="Unix ms: when the call was decided; time-outs count from it")
    for_report: Reservation | None = Field(
        default=None, description="of a spawn: the part of what is set aside that is kept for the report"
    )
    child: RunRequested | None = Field(default=None, description="of a spawn: the request of the task's run")
    report_as: dict[str, Any] = Field(
        default_factory=dict, description="of a spawn: fields of the request of the run that a report's run has too"
    )


class SessionTaskControl(Message):
    """A person asks for something about tasks. Each `id` counts once."""

    v: Literal[1] = 1
    kind: Literal["task_control"] = "task_control"
    id: str
    action: TaskControlAction
    task_id: str | None = None
    group_id: str | None = None
    by: str = Field(default="", description="the id of the API key; empty: a keyless caller")


class SessionGroupDue(Message):
    """A time-out has come: of a group, or of a run that waits for it."""

    v: Literal[1] = 1
    kind: Literal["group_due"] = "group_due"
    group_id: str
    what: Literal["group", "waiter"]


SessionTaskMessage = SessionTaskControl | SessionGroupDue


class TaskView(Message):
    """A background task, as HTTP and the model's tools show it."""

    task_id: str = Field(description="the id of its run too")
    session_id: str
    status: TaskStatusName
    name: str = ""
    mode: TaskMode
    tool: str | None = None
    query: str = ""
    group_id: str | None = Field(default=None, description="null: it was spawned without a group")
    spawned_by: str = Field(description="run")
    depth: int = 1
    requested_at: int = Field(description="Unix ms")
    ended_at: int | None = None
    code: str | None = Field(default=None, description="of a failed or partial task")
    result: str = Field(default="", description="what it found; empty in lists")
    is_held: bool = Field(default=False, description="a person has yet to apply or reject its result")
    is_merged: bool = Field(default=False, description="later runs of the session are shown its result")


class GroupView(Message):
    """A group of background tasks, as HTTP and the model's tools show it."""

    group_id: str
    session_id: str
    name: str
    status: GroupStatusName
    report: ReportMode
    merge: MergeStrategy
    tasks: list[str] = Field(description="ids")
    succeeded: list[str] = Field(default_factory=list)
    partial: list[str] = Field(default_factory=list, description="they ran out of their share, and have a result")
    failed: list[str] = Field(default_factory=list, description="cancelled ones included")
    awaits_decision: bool = False
    decision: Literal["applied", "rejected"] | None = None
    report_id: str | None = Field(default=None, description="the run that reports on the group")
    timeout_at: int | None = Field(default=None, description="Unix ms")
