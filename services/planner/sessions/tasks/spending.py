"""What a task has spent of its parent's budgets. Pure."""

from contracts.runs.payload import Usage
from contracts.sessions.records import SessionRunEnded
from contracts.sessions.tasks import Reservation
from services.shared.sessions.task_state import Group, Task


def spent_by(message: SessionRunEnded, task: Task, group: Group | None) -> Usage:
    """Return what a task spent, with what its run set aside for tasks that go on, and what is kept for the report.

    Nothing is kept where the run that spawned the task waits for it, or where no report is made.
    """
    usage, aside = message.ended.usage, message.set_aside
    kept = task.for_report if group is not None and _is_reported(task, group) else None
    return _with_kept(_with(usage, aside), kept or Reservation())


def _is_reported(task: Task, group: Group) -> bool:
    waiter = group.waiter
    is_waited_for = waiter is not None and (waiter.run, waiter.call_id) == (task.run, task.call_id)
    return group.report != "none" and not is_waited_for


def _with_kept(usage: Usage, kept: Reservation) -> Usage:
    is_known = usage.cost_usd is not None or not usage.model_calls
    cost = (usage.cost_usd or 0.0) + kept.max_cost_usd if is_known and kept.max_cost_usd is not None else usage.cost_usd
    return usage.model_copy(
        update={
            "prompt_tokens": usage.prompt_tokens + (kept.max_tokens or 0),
            "cost_usd": cost,
            "tool_calls": usage.tool_calls + (kept.max_tool_calls or 0),
        }
    )


def _with(usage: Usage, aside: Usage) -> Usage:
    cost = None if usage.cost_usd is None else usage.cost_usd + (aside.cost_usd or 0)
    return usage.model_copy(
        update={
            "tool_calls": usage.tool_calls + aside.tool_calls,
            "prompt_tokens": usage.prompt_tokens + aside.prompt_tokens,
            "completion_tokens": usage.completion_tokens + aside.completion_tokens,
            "cost_usd": cost,
        }
    )
