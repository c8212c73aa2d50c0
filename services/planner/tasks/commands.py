"""What follows from the tasks of a session: the commands that its effects carry out. All of them are idempotent."""

from dataclasses import dataclass
from typing import Literal

from contracts.inbox import CallFinished
from contracts.payload import Usage
from contracts.runs import RunRequested
from services.shared.session_tasks import Report


@dataclass(frozen=True, slots=True)
class StartTask:
    """Request the run of a task.

    `report_id`: the run of the report that is to have the `tool_context` of this request; None: another task's request
    gave it, or no report will follow.
    """

    request: RunRequested
    report_id: str | None


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """Send a run the outcome of its call about tasks."""

    run: str
    finished: CallFinished


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Cancel the run of a task."""

    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Request the run that reports on tasks (`reports.report_request`)."""

    report: Report


@dataclass(frozen=True, slots=True)
class DropReportContext:
    """Delete the `tool_context` that was kept for a report: it will not be requested."""

    report_id: str


@dataclass(frozen=True, slots=True)
class SetGroupTimer:
    """Set a timer of the session, whose message is `SessionGroupDue`. `at`: Unix ms."""

    what: Literal["group", "waiter"]
    group_id: str
    at: int


@dataclass(frozen=True, slots=True)
class SettleParent:
    """Tell the run that spawned a task what the task has spent. `call_id`: the call that spawned it."""

    run: str
    call_id: str
    task_id: str
    spent: Usage


TaskCommand = StartTask | AnswerCall | CancelTask | RequestReport | DropReportContext | SetGroupTimer | SettleParent
