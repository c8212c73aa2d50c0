"""The registry of strategies."""

from typing import get_args

from contracts.runs.requests import DEFAULT_STRATEGY, StrategyName
from services.planner.settings import PlannerSettings
from services.planner.strategies.base import JOB
from services.planner.strategies.registry import strategies_of


def test_every_name_that_a_request_may_give_has_a_strategy() -> None:
    """And nothing else is built, but for the strategy of jobs."""
    names = set(strategies_of(PlannerSettings()))
    assert names == {*get_args(StrategyName), JOB}
    assert DEFAULT_STRATEGY in names
