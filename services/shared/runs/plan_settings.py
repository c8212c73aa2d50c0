"""Limits of a plan: environment variables `RUNWIRE_PLAN_*`, the same for the planner and for a check by the gateway."""

from pydantic import Field

from contracts.wire.base import KIB
from runwire.plans import PlanBounds
from services.runtime.settings import BusSettings


class PlanSettings(BusSettings):
    """How large a plan may be."""

    plan_max_calls: int = Field(default=64, ge=1, le=1000, description="calls of a plan")
    plan_max_argument_bytes: int = Field(
        default=64 * KIB, ge=1024, le=96 * KIB, description="arguments of one call, as compact JSON"
    )
    plan_max_depth: int = Field(
        default=32,
        ge=1,
        le=50,
        description="levels of objects and lists in the arguments of a call, and segments of a template's path",
    )

    def bounds(self) -> PlanBounds:
        """Return them as a check takes them."""
        return PlanBounds(self.plan_max_calls, self.plan_max_argument_bytes, self.plan_max_depth)
