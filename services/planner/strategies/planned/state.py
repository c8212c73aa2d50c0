"""What the strategy `planned` keeps of its run: the plan, from the model's decision to the answer. Pure data.

PLAN is the step that decides, EXECUTE carries out the calls, RESPOND writes the answer. A plan that was rejected has
ended at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.events import Observed, Step
from contracts.runs.plans import CallStatus, Plan, PlanCall, PlanError
from runwire.plans import holds_templates
from services.planner.run.state.run import Run, StrategyState
from services.planner.run.turn.decision import OwnDecision

PLAN, EXECUTE, RESPOND = "plan", "execute", "respond"
"""Nodes of the steps. Steps of the strategy `react` may have the node `plan` too: with calls, and without a plan."""
PLANNING = "__planning__"
"""The one function that a request for a plan offers."""
MAX_NAMED_CALLS = 20
MAX_OUTLINE_CHARACTERS = 1000
"""Of the reasoning of a plan that is too large to be shown."""
_STATUS: dict[str, CallStatus] = {"succeeded": "success", "failed": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(OwnDecision):
    """Run the calls of a plan one after another; where it has errors, tell the model instead, and run nothing."""

    plan: Plan
    errors: tuple[PlanError, ...] = ()
    errors_left_out: int = 0


@dataclass(frozen=True, slots=True)
class ActivePlan:
    """A plan that the run works on, or whose results the model is to answer from."""

    step: Step
    """The decision, with the plan."""
    has_begun: bool = False
    has_ended: bool = False
    """No call of it follows: the next request to the model asks for the answer."""
    is_late: bool = False
    """The deadline has halted it."""
    halt_reason: str | None = None
    """Why calls of it were not executed, or failed."""
    ended_as: Sequence[CallStatus] = ()
    """The statuses of its calls, once all have ended."""

    @property
    def calls(self) -> Sequence[PlanCall]:
        """The calls of the plan, in their order."""
        return self.step.plan.calls if self.step.plan is not None else ()

    def call_id(self, index: int) -> str:
        """Return the id of a call of the plan."""
        return call_id(self.step, index)

    def statuses(self, outcomes: Mapping[str, Observed]) -> list[CallStatus]:
        """Return how each call has ended."""
        found = [outcomes.get(self.call_id(index)) for index in range(len(self.calls))]
        return ["not_executed" if each is None else _STATUS[each.status] for each in found]

    def resolved(self) -> set[str]:
        """Return the ids of the calls whose arguments hold templates."""
        return {self.call_id(index) for index, call in enumerate(self.calls) if holds_templates(call.arguments)}


@dataclass(frozen=True, slots=True)
class PlannedState(StrategyState):
    """The state of the strategy."""

    plan: ActivePlan | None = None
    """The plan that the next request, or the next call, is about."""
    inputs_read: int = 0
    """How many inputs the model has received so far. A new one may need calls, so the model plans again."""

    @property
    def is_late(self) -> bool:
        """Whether the deadline has halted the plan."""
        return self.plan is not None and self.plan.is_late

    @property
    def ran(self) -> str | None:
        """What came of the plan that was carried out, call by call."""
        if self.plan is None or not self.plan.ended_as:
            return None
        pairs = zip(self.plan.calls, self.plan.ended_as, strict=False)
        calls = [f"{call.tool_name}: {status.replace('_', ' ')}" for call, status in pairs]
        more = f" and {len(calls) - MAX_NAMED_CALLS} more" if len(calls) > MAX_NAMED_CALLS else ""
        reason = f"was halted ({self.plan.halt_reason})" if self.plan.halt_reason is not None else "was carried out"
        return f"the plan {reason}, its calls: {', '.join(calls[:MAX_NAMED_CALLS])}{more}"

    @property
    def stage(self) -> str:
        """What the next request asks for: a plan, or the answer from what came of one."""
        return RESPOND if self.plan is not None and self.plan.has_ended else PLAN


def state_of(run: Run) -> PlannedState:
    """Return the state of a run with this strategy."""
    return run.strategy_state if isinstance(run.strategy_state, PlannedState) else PlannedState()


def call_id(step: Step, index: int) -> str:
    """Return the id of a call of a step's plan. Calls are numbered from 0, as in templates."""
    return f"{step.step}-{index}"


def outline(plan: Plan) -> dict[str, Any]:
    """Return what is shown of a plan that is too large: the beginning of its reasoning, and the names of its tools."""
    calls = [{"tool_name": call.tool_name} for call in plan.calls]
    return {"reasoning": plan.reasoning[:MAX_OUTLINE_CHARACTERS], "calls": calls}
