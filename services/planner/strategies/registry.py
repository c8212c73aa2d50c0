"""The registry of strategies, and the strategy `job` of runs without a model: one call of a tool gives the answer.

A new strategy is a folder, or a module, and its line here. Its name, as requests give it, is also one of `StrategyName`
in the contracts. `job` is no such name: it belongs to runs with the cause `job`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from contracts.runs.events import Observed, PlannedCall, Step
from contracts.runs.payload import CALL_RESULT
from contracts.sessions.records import MAX_TURN_BYTES
from contracts.wire.faults import Fault
from services.planner.conversation.encoding import compact
from services.planner.run.calls import starting
from services.planner.run.commands import Handling, Rules
from services.planner.run.ending import budgets, terminal
from services.planner.run.state.run import Event, Run
from services.planner.run.turn.next_step import run_after
from services.planner.settings import PlannerSettings
from services.planner.strategies.base import JOB, Strategies, Strategy, ThinkingFirst
from services.planner.strategies.chat.strategy import Chat
from services.planner.strategies.planned.strategy import Planned
from services.planner.strategies.react.strategy import React
from services.shared.redaction.json_values import cut
from services.shared.runs.pages.registry import load_pages


class Job(Strategy):
    """Makes the one call that the request names, and ends the run with its result."""

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        """Return the call; once it has ended, the end of the run."""
        del rules
        started = run.started
        job = started.request.job if started is not None else None
        if job is None:
            return [terminal.failed(run, Fault(code="bad_request", reason="the request names no call"))]
        outcome = next(iter([*run.observed.values(), *observed]), None)
        if run.step is not None and outcome is not None:
            later = run_after(run, observed=observed)
            if outcome.status == "failed":
                failure = outcome.failure or Fault(code="tool_error", reason="the call failed")
                return [terminal.failed(later, failure)]
            found = outcome.observation
            text = found if isinstance(found, str) and found.strip() else compact(found)
            return [terminal.answered(later, {"answer": cut(text, MAX_TURN_BYTES), "extra": {CALL_RESULT: found}})]
        now = handling.progress.now
        if (budget := budgets.spent_calls(run, 1)) is not None:
            return [budgets.out_of(run, budget, now)]
        calls = [PlannedCall(call_id="1-1", tool=job.tool, args=job.args)]
        step = Step(step=1, node=job.tool, status="started", calls=calls, by=handling.incoming.owner)
        return [step, *starting.held(run, now, 1, calls)]


def asking(settings: PlannerSettings) -> dict[str, Any]:
    """Return the settings of a strategy that asks a model."""
    return {
        "native_reasoning": settings.use_native_reasoning,
        "idle_s": settings.model_idle_s,
        "total_s": settings.model_total_s,
    }


REGISTRY: dict[str, Callable[[PlannerSettings], Strategy]] = {
    "react": lambda settings: React(**asking(settings)),
    "chat": lambda settings: Chat(load_pages(settings.pages_file), **asking(settings)),
    "planned": lambda settings: Planned(**asking(settings), bounds=settings.bounds()),
    JOB: lambda _: Job(),
}
"""By name: how a strategy is built for a deployment."""


def strategies_of(settings: PlannerSettings) -> Strategies:
    """Build every strategy for this deployment."""
    strategies = Strategies({name: build(settings) for name, build in REGISTRY.items()})
    models = ThinkingFirst(settings.thinking_first_models)
    for strategy in strategies.values():
        strategy.thinking_first = models
    return strategies
