"""Tasks and groups of a session, as HTTP and the model's tools show them."""

from contracts.sessions.tasks import GroupView, TaskView
from services.shared.sessions.state import Session
from services.shared.sessions.task_state import Group, Task


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
