"""The answers to calls about tasks, as `call_finished` of a run that a model reads. Pure.

What a request about tasks is about: a task, or a group. Pure.
"""

from dataclasses import dataclass
from typing import Any

from contracts.runs.inbox import CallFinished
from contracts.sessions.tasks import TASK_TOOLS, SessionTaskCalled, SessionTaskControl, TaskAction
from contracts.wire.faults import Fault
from services.planner.sessions.tasks.reports import shown
from services.shared.sessions.state import Session, group_view, shown_groups, task_view
from services.shared.sessions.task_state import Background, Group, Task


@dataclass(frozen=True, slots=True)
class Target:
    """A group, or one task of it."""

    group: Group
    task: Task | None


def target(background: Background, message: SessionTaskCalled | SessionTaskControl) -> Target | Fault:
    """Return what a request names. A group of another session is as unknown as one that does not exist."""
    if isinstance(message, SessionTaskControl):
        task_id, group_id = message.task_id, message.group_id
    else:
        task_id, group_id = message.args.get("task_id"), message.args.get("group_id")
    if task_id:
        task = background.tasks.get(str(task_id))
        of_task = background.groups.get(task.group_id) if task is not None else None
        if task is None or of_task is None:
            return Fault(code="task_not_found", reason="there is no such task")
        return Target(of_task, task)
    group = background.groups.get(str(group_id))
    if group is None or not group.name:
        return Fault(code="group_not_found", reason="there is no such group")
    return Target(group, None)


def control_id(message: SessionTaskCalled | SessionTaskControl) -> str:
    """Return the id under which a request counts once."""
    return message.id if isinstance(message, SessionTaskControl) else f"{message.run}/{message.call_id}"


MAX_ANSWERED_BYTES = 24 * 1024
"""Results in one answer, together."""
MAX_LISTED = 50
_TOOLS: dict[TaskAction, str] = {action: tool for tool, action in TASK_TOOLS.items()}
_CLOSED = Fault(code="not_found", reason="the run has ended, or its session is being deleted")


def of_spawn(session: Session, call: SessionTaskCalled) -> CallFinished | None:
    """Return the answer to the call for a task; None: its run waits for the group."""
    task_id = call.child.run_id if call.child is not None else ""
    task = session.background.tasks.get(task_id)
    group = session.background.groups.get(task.group_id) if task is not None else None
    if task is None or group is None:
        fault = session.background.answered.get(task_id)
        if fault is None and session.background.has_spawned(call.run, task_id):
            return _succeeded(call.call_id, "spawn", {"task_id": task_id})
        return _failed(call.call_id, "spawn", fault or _CLOSED)
    waiter = group.waiter
    if waiter is None or (waiter.run, waiter.call_id) != (call.run, call.call_id):
        return _succeeded(call.call_id, "spawn", _of_task(task, group))
    return of_waiter(session, group)


def of_waiter(session: Session, group: Group) -> CallFinished | None:
    """Return the answer for the run that waits for a group; None: it waits on, or nobody waits."""
    waiter = group.waiter
    if waiter is None or waiter.state not in {"answered", "timed_out"}:
        return None
    tasks = session.background.tasks_of(group)
    of_call = next((task for task in tasks if (task.run, task.call_id) == (waiter.run, waiter.call_id)), tasks[0])
    is_cancelled = waiter.state == "answered" and not group.has_ended
    observation = {
        **_of_task(of_call, group),
        "status": "cancelled" if is_cancelled else group.status,
        "timed_out": waiter.state == "timed_out",
        "results": shown(group, tasks, MAX_ANSWERED_BYTES),
    }
    return _succeeded(waiter.call_id, "spawn", observation)


def of_call(session: Session, call: SessionTaskCalled) -> CallFinished:
    """Return the answer to any other call about tasks."""
    if not session.is_open(call.run):
        return _failed(call.call_id, call.action, _CLOSED)
    if call.action == "list":
        return _succeeded(call.call_id, "list", _listed(session))
    fault = session.background.answered.get(control_id(call))
    found = target(session.background, call) if fault is None else fault
    if isinstance(found, Fault):
        return _failed(call.call_id, call.action, found)
    if found.task is not None:
        of_task = task_view(session, found.task, with_result=found.group.may_show_results)
        status = of_task.model_dump(mode="json", exclude_defaults=True, exclude={"session_id"})
    else:
        status = group_view(session, found.group).model_dump(mode="json", exclude={"session_id", "tasks"})
        tasks = session.background.tasks_of(found.group)[:MAX_LISTED]
        status["tasks"] = shown(found.group, tasks, MAX_ANSWERED_BYTES)
    return _succeeded(call.call_id, call.action, status)


def dropped_task(session: Session, call: SessionTaskCalled) -> str | None:
    """Return the task that a call asks about, if the session has dropped it, or what it found; None: it has not."""
    task_id = call.args.get("task_id")
    if call.action != "status" or not isinstance(task_id, str):
        return None
    task = session.background.tasks.get(task_id)
    return task_id if task is None or (task.has_result and not task.digest) else None


def _of_task(task: Task, group: Group) -> dict[str, Any]:
    of_group = {"group_id": group.group_id, "group": group.name} if group.name else {}
    return {"task_id": task.task_id, **of_group, "status": task.status}


def _listed(session: Session) -> dict[str, Any]:
    tasks = list(session.background.tasks.values())
    views = [task_view(session, task, with_result=False) for task in tasks[-MAX_LISTED:]]
    groups = [group_view(session, group) for group in shown_groups(session)[-MAX_LISTED:]]
    return {
        "tasks": [view.model_dump(mode="json", exclude_defaults=True, exclude={"session_id"}) for view in views],
        "groups": [
            {"group_id": view.group_id, "name": view.name, "status": view.status, "tasks": len(view.tasks)}
            for view in groups
        ],
        "tasks_in_all": len(tasks),
    }


def _succeeded(call_id: str, action: TaskAction, observation: dict[str, Any]) -> CallFinished:
    return CallFinished(call_id=call_id, tool=_TOOLS[action], status="succeeded", observation=observation)


def _failed(call_id: str, action: TaskAction, fault: Fault) -> CallFinished:
    return CallFinished(call_id=call_id, tool=_TOOLS[action], status="failed", failure=fault)
