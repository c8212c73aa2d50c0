"""What a run may spend, what it has spent, and what happens when a budget is exhausted. Pure.

A budget is checked before each call, so one call at most can exceed it. What background tasks of the run have spent,
and what is set aside for them, counts as spent (`task_budgets`). A run with a grace period pauses and waits for
a top-up; every other run ends with the results that it has.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from contracts.runs.events import Paused, Resumed, ToppedUp
from contracts.runs.requests import RunLimits
from services.planner.run.commands import Rules
from services.planner.run.ending import terminal
from services.planner.run.state.run import Event, Run
from services.planner.run.state.task_budgets import so_far
from services.shared.budgets.totals import exhausted


def spent(run: Run, now: int) -> str | None:
    """Name the exhausted budget that forbids another model call, with its limit; None while none does."""
    limits, used = run.limits, so_far(run)
    if run.deadline_at is not None and now >= run.deadline_at:
        return deadline(run)
    if limits.max_tokens is not None and used["max_tokens"] >= limits.max_tokens:
        return f"max_tokens of {limits.max_tokens}"
    is_priced = run.usage.cost_usd is not None
    if limits.max_cost_usd is not None and is_priced and used["max_cost_usd"] >= limits.max_cost_usd:
        return f"max_cost_usd of {limits.max_cost_usd:g}"
    return None


def spent_for_step(run: Run, now: int) -> str | None:
    """Name the exhausted budget that forbids another decision, or None."""
    return f"max_steps of {run.limits.max_steps}" if run.turn >= run.limits.max_steps else spent(run, now)


def spent_calls(run: Run, wanted: int) -> str | None:
    """Name the budget that `wanted` more tool calls would exceed, or None."""
    limit = run.limits.max_tool_calls
    if limit is None or so_far(run)["max_tool_calls"] + wanted <= limit:
        return None
    return f"max_tool_calls of {limit}"


def tool_calls_left(run: Run) -> int | None:
    """Return how many more tool calls the run may make; None: any number."""
    limit = run.limits.max_tool_calls
    return None if limit is None else max(0, limit - int(so_far(run)["max_tool_calls"]))


def spent_by_key(run: Run, rules: Rules) -> str | None:
    """Name the exhausted budget of the run's API key, with its limit; None while none is known to be exhausted."""
    request = run.request
    if request is None or request.key_budget is None or rules.key_spending is None:
        return None
    limit = exhausted(request.key_budget, rules.key_spending)
    return None if limit is None else f"{limit} of the API key"


def deadline(run: Run) -> str:
    """Name the deadline as a budget."""
    return "deadline_s" if run.limits.deadline_s is None else f"deadline_s of {run.limits.deadline_s:g}"


def out_of(run: Run, budget: str, now: int, args: dict[str, Any] | None = None) -> Event:
    """Return the pause, or the end, for a spent budget. `args`: those of an unfinished final response."""
    if run.limits.grace_s > 0:
        return Paused(budget=budget, until=now + int(run.limits.grace_s * 1000))
    return terminal.budget_exhausted(run, budget, args)


def topped_up(run: Run, given: Mapping[str, Any], now: int, by: str) -> list[Event]:
    """Raise the limits of a run. `given` counts from now on; the recorded fact holds the resulting totals."""
    limits, deadline_at = run.limits.model_dump(), run.deadline_at
    used = {"max_steps": run.turn, **so_far(run)}
    for name, value in given.items():
        limits[name] = value + used[name] if name in used and value is not None else value
    if "deadline_s" in given:
        seconds = given["deadline_s"]
        deadline_at = None if seconds is None else now + int(seconds * 1000)
    try:
        fact = ToppedUp(limits=RunLimits.model_validate(limits), deadline_at=deadline_at, by=by)
    except (ValidationError, TypeError):
        return []  # The gateway validates requests. An invalid top-up from another sender changes nothing.
    return [fact, Resumed()] if run.paused is not None else [fact]
