"""A planner that knows the third strategy, and kills itself (`tests.planner.dying_planner`)."""

from typing import Any

from services.planner.strategies.registry import REGISTRY, asking
from tests.planner import dying_planner
from tests.planner.strategies.drafts.strategy import Drafts

LINE = ("drafts", lambda settings: Drafts(**asking(settings)))
"""The line of the registry."""


def run(*what: Any, **settings: Any) -> None:
    """Plan until the record comes."""
    REGISTRY.update([LINE])
    dying_planner.run(*what, **settings)
