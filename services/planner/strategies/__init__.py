"""The registry of strategies. The name of each is a `StrategyName` of contracts, and its line is here.

`job` is no name that a request may give: it belongs to runs with the cause `job`.
"""

from services.planner.settings import PlannerSettings
from services.planner.strategies.base import JOB, Strategies
from services.planner.strategies.job import Job
from services.planner.strategies.planned.strategy import Planned
from services.planner.strategies.react.strategy import React


def strategies_of(settings: PlannerSettings) -> Strategies:
    """Build every strategy for this deployment."""
    return {
        "react": React(
            native_reasoning=settings.use_native_reasoning,
            idle_s=settings.model_idle_s,
            total_s=settings.model_total_s,
        ),
        "planned": Planned(
            native_reasoning=settings.use_native_reasoning,
            idle_s=settings.model_idle_s,
            total_s=settings.model_total_s,
            bounds=settings.bounds(),
        ),
        JOB: Job(),
    }
