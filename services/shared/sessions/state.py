"""A session: what its log adds up to (`services.shared.sessions.fold`), and its tasks and groups as people see them.

`Session` is frozen: each record gives a new one, so any of them may be kept. `Checkpoint.state` is `Session` as JSON.

The conversation that the next run knows is rendered from `turns`, `older_turns`, `summary`, `summarised_turns` and
`context`. `approvals` says which of its calls need no further approval.

`task_view` and `group_view` are what HTTP and the model's tools show.
"""

from typing import Any, Literal

from pydantic import Field

from contracts.runs.pauses import OpenPause
from contracts.runs.payload import Usage
from contracts.runs.requests import RunCause
from contracts.sessions.tasks import GroupView, TaskView
from contracts.wire.base import Message
from contracts.wire.faults import Fault
from services.shared.sessions.proposals import Proposal
from services.shared.sessions.task_state import Background, Group, Task


class Turn(Message):
    """A question and its answer, of a run that had the turn: 32 KiB of each."""

    run: str
    requested_at: int
    question: str
    inputs: list[str] = Field(default_factory=list)
    """Texts that were added while the run went on."""
    answer: str
    outcome: Literal["done", "error", "cancelled"]
    is_cut: bool = False
    """Its texts were longer. The whole ones are in the log of the run."""
    attached: list[str] = Field(default_factory=list)
    """Ids of the images that came with the question."""
    size: int = 0
    """As JSON, in bytes."""


class CurrentRun(Message):
    """The run that has the turn. `begun_seq`: sequence of the record that gave it the turn."""

    run: str
    requested_at: int = 0
    begun_seq: int = 0
    cause: RunCause = "user"
    yielded_seq: int = 0
    """Of a report that begins again: sequence of the record that gave its turn away; 0: it never did."""
    waits: bool = False
    """It does nothing but wait for a person."""
    waits_seq: int = 0
    """Sequence of the run's record that the newest message about its waiting came from."""


class QueuedRun(Message):
    """A run that waits for its turn."""

    run: str
    requested_at: int
    cause: RunCause = "user"
    yielded_seq: int = 0
    """As of CurrentRun."""
    is_first: bool = False
    """It begins next, and the run that has the turn was cancelled for it."""
    forwarded_to: str | None = None
    """The run to which its text was sent. Until that run has answered, this one does not begin."""
    was_missed: bool = False
    """That run did not take the text. So this one begins before those that were queued, in the order of the answers."""


class RecentRun(Message):
    """A run that ended, was merged into another one, or was refused."""

    run: str
    requested_at: int = 0
    merged_into: str | None = None
    fault: Fault | None = None


class Session(Message):
    """What the log of a session adds up to. `seq`: sequence of its newest record, which fences the next append."""

    seq: int = 0
    checkpoint_seq: int = 0
    """Sequence of the newest checkpoint; 0: none."""
    records: int = 0
    """Records since then."""
    deleted_seq: int = 0
    """Sequence of the record that deleted an earlier session with this id; 0: none is known."""

    session_id: str = ""
    """Empty: there is no session."""
    user_id: str | None = None
    created_at: int = 0
    updated_at: int = 0
    is_deleting: bool = False

    current: CurrentRun | None = None
    queue: list[QueuedRun] = Field(default_factory=list)
    recent: list[RecentRun] = Field(default_factory=list)
    """Newest first."""
    pauses: list[OpenPause] = Field(default_factory=list)
    """Of the run that has the turn, and of tasks."""
    runs: int = 0
    older_runs: dict[str, int | None] = Field(default_factory=dict)
    """Runs that are stored and that only removed records named, with the time of their request, Unix ms; null: unknown.
    More than `MAX_OLDER_RUNS`: these are not all."""
    usage: Usage = Usage()

    turns: list[Turn] = Field(default_factory=list)
    """Oldest first."""
    older_turns: int = 0
    """Turns that are no longer in `turns`."""
    summary: str = ""
    summarised_turns: int = 0
    """How many turns the summary represents, counted from the first one of the session."""
    summary_run: str = ""
    """The run that makes a summary now; empty: none."""
    summary_requested_at: int = 0
    """Unix ms: of that run."""
    context: dict[str, Any] = Field(default_factory=dict)
    """Values that callers and tasks have set: untrusted data."""
    context_by: str = ""
    """`<stream>:<sequence>` of the message that set values last. An older message sets none."""
    approvals: frozenset[tuple[str, str, str, str | None]] = frozenset()
    """Rule, tool and agent of each approval that holds for the session."""
    background: Background = Background()
    """Its tasks and groups, and the results that later runs are shown."""
    proposals: dict[str, Proposal] = Field(default_factory=dict)
    """By id, the oldest first: what its turns have proposed or shown, and what became of it."""
    turn_seq: int = 0
    """Sequence of the record that gave a user's run the turn last."""
    previous_turn_seq: int = 0
    """The same of the turn before."""

    @property
    def exists(self) -> bool:
        """Whether there is a session: it has begun, and was not deleted since."""
        return bool(self.session_id)

    def open_runs(self) -> list[str]:
        """Return the run that has the turn, those that wait, tasks, reports that have not joined, and applies."""
        turns = [*([self.current.run] if self.current else []), *(each.run for each in self.queue)]
        tasks_and_reports = [task.task_id for task in self.background.open_tasks()]
        tasks_and_reports += [report.report_id for report in self.background.reports]
        applies = [each.job for each in self.proposals.values() if each.job and each.state == "applying"]
        return [*turns, *tasks_and_reports, *applies]

    @property
    def pending_proposal(self) -> str | None:
        """Id of the proposal that waits for a decision; None: there is none."""
        pending = (each.payload_id for each in reversed(self.proposals.values()) if each.state == "pending")
        return next(pending, None)

    def is_open(self, run: str) -> bool:
        """Whether a run of the session has not ended, as far as the session knows."""
        task = self.background.tasks.get(run)
        return run in self.open_runs() if task is None else task.status == "running"

    def queued(self, run: str) -> QueuedRun | None:
        """Return the entry of a run that waits for its turn."""
        return next((each for each in self.queue if each.run == run), None)

    def recent_run(self, run: str) -> RecentRun | None:
        """Return what became of a run; None for an open one, and for one that ended long ago."""
        return next((each for each in self.recent if each.run == run), None)


def task_view(session: Session, task: Task, *, with_result: bool = True) -> TaskView:
    """Return a task as people see it. `with_result`: false in lists."""
    group = session.background.groups.get(task.group_id)
    return TaskView(
        session_id=session.session_id,
        spawned_by=task.run,
        group_id=task.group_id if group is not None and group.name else None,
        result=task.digest if with_result else "",
        is_held=group is not None and is_held(task, group),
        **task.model_dump(
            include={
                *("task_id", "status", "name", "mode", "tool", "query", "depth", "requested_at", "ended_at", "code"),
                "is_merged",
            }
        ),
    )


def is_held(task: Task, group: Group) -> bool:
    """Whether the result of a task waits for a person's decision, or for its group."""
    return task.has_result and group.merge == "HUMAN_GATED" and group.decision is None


def group_view(session: Session, group: Group) -> GroupView:
    """Return a group as people see it."""
    tasks = session.background.tasks_of(group)
    return GroupView(
        session_id=session.session_id,
        succeeded=[task.task_id for task in tasks if task.status == "succeeded"],
        partial=[task.task_id for task in tasks if task.status == "partial"],
        failed=[task.task_id for task in tasks if task.status in {"failed", "cancelled"}],
        awaits_decision=group.awaits_decision,
        **group.model_dump(
            include={"group_id", "name", "status", "report", "merge", "tasks", "decision", "report_id", "timeout_at"}
        ),
    )


def shown_groups(session: Session) -> list[Group]:
    """Return the groups that people see, oldest first: a task that was spawned without a group is no group."""
    groups = [session.background.groups.get(task_id) for task_id in session.background.tasks]
    return [group for group in groups if group is not None and group.name]
