"""The registry of strategies: a new one is a folder, or a module, and its line here.

The name of a strategy that requests may give is also one of `StrategyName` in the contracts. `job` is no such name: it
belongs to runs with the cause `job`.
"""

from collections.abc import Callable
from typing import Any

from services.planner.replies.habits import ThinkingFirst
from services.planner.run.state.run import StrategyState
from services.planner.settings import PlannerSettings
from services.planner.strategies.base import JOB, Strategies, Strategy
from services.planner.strategies.chat.state import ChatState
from services.planner.strategies.chat.strategy import Chat
from services.planner.strategies.job import Job
from services.planner.strategies.planned.state import PlannedState
from services.planner.strategies.planned.strategy import Planned
from services.planner.strategies.react.strategy import React
from services.shared.runs.pages.registry import load_pages

OwnState = StrategyState | PlannedState | ChatState
"""Every state that the strategies here keep of their runs; the base is the state of those that keep nothing."""


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
