"""The registry of strategies. Each has a folder; its name is a `StrategyName` of contracts, and its line is here."""

from services.planner.settings import PlannerSettings
from services.planner.strategies.base import Strategies
from services.planner.strategies.react.strategy import React


def strategies_of(settings: PlannerSettings) -> Strategies:
    """Build every strategy for this deployment."""
    return {
        "react": React(
            native_reasoning=settings.use_native_reasoning,
            idle_s=settings.model_idle_s,
            total_s=settings.model_total_s,
        )
    }
