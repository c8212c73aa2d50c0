"""What a request about tasks is about: a task, or a group. Pure."""

from dataclasses import dataclass

from contracts.sessions.tasks import SessionTaskCalled, SessionTaskControl
from contracts.wire.faults import Fault
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
