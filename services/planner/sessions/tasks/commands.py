"""What follows from the tasks of a session: the commands that its effects carry out. All of them are idempotent."""

from dataclasses import dataclass
from typing import Literal, assert_never

from contracts.runs.inbox import CallFinished, RunTaskSettled, RunTasksPaused
from contracts.runs.pauses import OpenPause, TasksPaused, pause_id, token_of
from contracts.runs.requests import RunRequested
from contracts.sessions.records import SessionRunEnded, SessionRunWaits
from contracts.sessions.tasks import SessionGroupDue, SessionTaskCalled, SessionTaskControl, SessionTaskMessage
from contracts.wire.faults import Fault
from services.planner.sessions.tasks import reports
from services.planner.sessions.tasks.reports import Target, target
from services.shared.sessions.state import Session
from services.shared.sessions.task_state import Group, Report


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
    tasks: tuple[str, ...] = ()
    """The tasks whose results the run may be shown: what their runs made is added."""


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Cancel the run of a task."""

    task_id: str


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
class TellRun:
    """Tell a run what a task that it spawned has spent, or what the tasks that it waits for need of people.

    `name`: of the message, which counts once for the run.
    """

    run: str
    name: str
    message: RunTaskSettled | RunTasksPaused


TaskCommand = StartTask | AnswerCall | CancelTask | RequestReport | DropReportContext | SetGroupTimer | TellRun


def commands(
    session: Session, cause: SessionTaskMessage | SessionTaskCalled | SessionRunEnded | SessionRunWaits
) -> list[TaskCommand]:
    """Return what follows from the state, after the message was handled. A redelivery repeats the commands."""
    match cause:
        case SessionTaskCalled(action="spawn"):
            return _of_spawn(session, cause)
        case SessionTaskCalled():
            of_target = [] if cause.action in {"list", "status"} else _of_target(session, cause)
            asked = target(session.background, cause) if cause.action == "status" else None
            found = readable(session, asked.group) if isinstance(asked, Target) else ()
            return [AnswerCall(cause.run, reports.of_call(session, cause), found), *of_target]
        case SessionTaskControl():
            return _of_target(session, cause)
        case SessionGroupDue(group_id=group_id):
            group = session.background.groups.get(group_id)
            return [*_cancels(session, group), *_of_group(session, group)] if group is not None else []
        case SessionRunEnded():
            return _of_end(session, cause)
        case SessionRunWaits(waits=waits):
            task = session.background.tasks.get(waits.run)
            group = session.background.groups.get(task.group_id) if task is not None else None
            return _told(session, group) if group is not None else []
        case _:
            assert_never(cause)


def _of_spawn(session: Session, call: SessionTaskCalled) -> list[TaskCommand]:
    finished = reports.of_spawn(session, call)
    task = session.background.tasks.get(call.child.run_id) if call.child is not None else None
    group = session.background.groups.get(task.group_id) if task is not None else None
    found: list[TaskCommand] = []
    if finished is not None:
        found.append(AnswerCall(call.run, finished, readable(session, group) if group is not None else ()))
    if task is None or group is None or call.child is None:
        return found
    if task.status == "running":
        # The first task of a group gives the context of the group's report.
        gives_context = group.reports_each or task.task_id == group.group_id
        report_id = reports.report_id(session.session_id, group, task.task_id)
        has_report = gives_context and reports.may_follow(group)
        found.insert(0, StartTask(call.child, report_id if has_report else None))
    if task.is_cancelling or session.is_deleting:
        found.append(CancelTask(task.task_id))
    if task.task_id == group.group_id and group.timeout_at is not None and not group.has_ended:
        found.append(SetGroupTimer("group", group.group_id, group.timeout_at))
    if group.waiter is not None and group.is_waited_for and group.waiter.call_id == call.call_id:
        found += [SetGroupTimer("waiter", group.group_id, group.waiter.until)]
        found += _told(session, group) if pauses_of(session, group) else []
    return found


def readable(session: Session, group: Group) -> tuple[str, ...]:
    """Return the tasks of a group whose results models may read."""
    tasks = session.background.tasks_of(group) if group.may_show_results else []
    return tuple(task.task_id for task in tasks if task.has_result)


def _told(session: Session, group: Group) -> list[TaskCommand]:
    waiter = group.waiter
    if waiter is None or not group.is_waited_for:
        return []
    paused = TasksPaused(call_id=waiter.call_id, seq=session.seq, pauses=pauses_of(session, group))
    return [TellRun(waiter.run, f"tasks_paused-{waiter.call_id}-{session.seq}", RunTasksPaused(paused=paused))]


def pauses_of(session: Session, group: Group) -> list[OpenPause]:
    """Return what a run that waits for a group waits for: the pauses of its tasks and of theirs, and held results."""
    background, waiter = session.background, group.waiter
    found = [pause for pause in session.pauses if pause.run_id in group.tasks]
    for each in background.groups.values():
        if each.waiter is not None and each.is_waited_for and each.waiter.run in group.tasks:
            found += pauses_of(session, each)
    if waiter is not None and group.awaits_decision:
        name = pause_id(waiter.run, f"{group.group_id}-results", 0)
        of_group = {"group_id": group.group_id} if group.name else {"task_id": group.tasks[0]}
        held = OpenPause(
            pause_id=name,
            run_id=waiter.run,
            reason="confirmation",
            source="planner",
            title="Use what was found?",
            call_id=waiter.call_id,
            tool="tasks.apply",
            arguments=of_group,
            token=token_of(name, 1, group.group_id),
            expires_at=waiter.until,
        )
        found.append(held)
    return found


def _of_target(session: Session, cause: SessionTaskCalled | SessionTaskControl) -> list[TaskCommand]:
    found = target(session.background, cause)
    return [] if isinstance(found, Fault) else [*_cancels(session, found.group), *_of_group(session, found.group)]


def _cancels(session: Session, group: Group) -> list[TaskCommand]:
    tasks = session.background.tasks_of(group)
    return [CancelTask(task.task_id) for task in tasks if task.is_cancelling]


def _of_end(session: Session, cause: SessionRunEnded) -> list[TaskCommand]:
    run, background = cause.ended.run, session.background
    found: list[TaskCommand] = []
    task = background.tasks.get(run)
    group = background.groups.get(task.group_id) if task is not None else None
    if task is not None and session.is_open(task.run):
        spent = reports.spent_by(cause, task, group)
        settled = RunTaskSettled(call_id=task.call_id, task_id=task.task_id, spent=spent)
        found.append(TellRun(task.run, f"task_settled-{task.call_id}", settled))
    if group is not None:
        found += _of_group(session, group, of_task=run)
        found += _told(session, group) if cause.ended.outcome != "done" else []  # Its pauses are over.
    own = {each.group_id for each in background.tasks.values() if each.run == run}
    for each in [background.groups[group_id] for group_id in background.groups if group_id in own]:
        found += [item for item in _of_group(session, each) if not isinstance(item, AnswerCall)]
    spawned = [each for each in background.tasks.values() if each.run == run and each.is_cancelling]
    return [*found, *(CancelTask(each.task_id) for each in spawned)]


def _of_group(session: Session, group: Group, of_task: str | None = None) -> list[TaskCommand]:
    """Return what follows for a group: its reports and the answer of the run that waits.

    `of_task`: the task that ended. Before the group has ended, only its own reports follow.
    """
    finished = reports.of_waiter(session, group)
    found: list[TaskCommand] = []
    waiter = group.waiter
    if finished is not None and waiter is not None:
        has_all = waiter.state == "answered" and group.has_ended
        answer = AnswerCall(waiter.run, finished, readable(session, group))
        found += [answer] if has_all or of_task is None else []
    found += _told(session, group) if group.awaits_decision else []
    found += [
        RequestReport(report)
        for report in session.background.reports
        if report.group_id == group.group_id and (group.has_ended or of_task is None or of_task in report.tasks)
    ]
    if group.report != "none" and session.background.is_settled(group) and not reports.may_follow(group):
        tasks = [task for task in session.background.tasks_of(group) if not task.is_reported]
        ids = {reports.report_id(session.session_id, group, task.task_id) for task in tasks}
        found += [DropReportContext(each) for each in sorted(ids)]
    return found
