"""What the background tasks of a run take of its limits. Pure.

Rule 1: a part of what is left is set aside when a task is spawned. It becomes the limits of the task's run, and of the
run that reports on the task.
Rule 2: once the task has ended, what it spent counts in place of that, with what is kept for the report. The rest is
the run's again.
So a run, its tasks and the reports on them together never exceed the limits of the run by more than one call of each.
"""

import math
from collections.abc import Iterable

from contracts.runs.payload import Usage
from contracts.sessions.tasks import Reservation
from services.planner.run.state.run import Run

REPORT_PART = 0.25
"""Of what is set aside for a task: the part that the report on it may spend."""


def taken(run: Run) -> Usage:
    """Return what the tasks take of the run's limits: spent by those that ended, set aside for those that go on."""
    return _sum(run.spent_by_tasks, run.set_aside.values()) if run.set_aside else run.spent_by_tasks


def with_settled(total: Usage, reserved: Reservation, spent: Usage) -> Usage:
    """Return the usage of all ended tasks with that of one more. A cost that is not known counts as all of it."""
    cost_usd = spent.cost_usd if spent.cost_usd is not None or not spent.model_calls else reserved.max_cost_usd
    return _sum(total, [Reservation(max_tokens=tokens(spent), max_cost_usd=cost_usd, max_tool_calls=spent.tool_calls)])


def tokens(usage: Usage) -> int:
    """Return the tokens that count towards `max_tokens`."""
    return usage.prompt_tokens + usage.completion_tokens


def so_far(run: Run) -> dict[str, int | float]:
    """Return what counts against each limit by now: what the run has spent, and what its tasks take."""
    of_tasks = taken(run)
    return {
        "max_tokens": tokens(run.usage) + tokens(of_tasks),
        "max_cost_usd": (run.usage.cost_usd or 0.0) + (of_tasks.cost_usd or 0.0),
        "max_tool_calls": run.usage.tool_calls + of_tasks.tool_calls,
    }


def share(run: Run, part_of_left: float, calls: int) -> Reservation | str:
    """Return the part of what is left that a new task gets, or the name of a budget of which too little is left.

    `calls`: tool calls of the run that are not in its usage yet.
    """
    part: dict[str, int | float] = {}
    for name, used in so_far(run).items():
        if (limit := getattr(run.limits, name)) is not None:
            left = limit - used - (calls if name == "max_tool_calls" else 0)
            part[name] = left * part_of_left if name == "max_cost_usd" else int(left * part_of_left)
    spent = next((name for name, value in part.items() if value <= 0), None)
    return spent or Reservation.model_validate(part)


def divided(part: Reservation) -> tuple[Reservation, Reservation]:
    """Divide what is set aside for a task into the limits of its run and those of the report on it."""
    calls, tokens_, cost_usd = part.max_tool_calls, part.max_tokens, part.max_cost_usd
    of_task = Reservation(
        max_tokens=None if tokens_ is None else math.ceil(tokens_ * (1 - REPORT_PART)),
        max_cost_usd=None if cost_usd is None else cost_usd * (1 - REPORT_PART),
        max_tool_calls=None if calls is None else math.ceil(calls * (1 - REPORT_PART)),
    )
    of_report = Reservation(
        # A limit of tokens is at least 1.
        max_tokens=None if tokens_ is None else max(1, tokens_ - (of_task.max_tokens or 0)),
        max_cost_usd=None if cost_usd is None else cost_usd * REPORT_PART,
        max_tool_calls=None if calls is None else calls - (of_task.max_tool_calls or 0),
    )
    return of_task, of_report


def _sum(total: Usage, parts: Iterable[Reservation]) -> Usage:
    parts = [*parts]
    return Usage(
        prompt_tokens=tokens(total) + sum(each.max_tokens or 0 for each in parts),
        cost_usd=(total.cost_usd or 0.0) + sum(each.max_cost_usd or 0.0 for each in parts),
        tool_calls=total.tool_calls + sum(each.max_tool_calls or 0 for each in parts),
    )
