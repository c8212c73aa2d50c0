"""The plan of a run with the strategy `planned`, from the model's decision to the answer. Pure data.

PLAN is the step that decides, EXECUTE carries out the calls, RESPOND writes the answer. A plan that was rejected has
ended at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE
from contracts.runs.events import Observed, Step
from contracts.runs.plans import CallStatus, Plan, PlanCall
from runwire.plans import holds_templates

PLAN, EXECUTE, RESPOND = "plan", "execute", "respond"
"""Nodes of the steps. Steps of the strategy `react` may have the node `plan` too: with calls, and without a plan."""
MAX_OUTLINE_CHARACTERS = 1000
"""Of the reasoning of a plan that is too large to be shown."""


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


_STATUS: dict[str, CallStatus] = {"succeeded": "success", "failed": "failed"}


def call_id(step: Step, index: int) -> str:
    """Return the id of a call of a step's plan. Calls are numbered from 0, as in templates."""
    return f"{step.step}-{index}"


def outline(plan: Plan) -> dict[str, Any]:
    """Return what is shown of a plan that is too large: the beginning of its reasoning, and the names of its tools."""
    calls = [{"tool_name": call.tool_name} for call in plan.calls]
    return {"reasoning": plan.reasoning[:MAX_OUTLINE_CHARACTERS], "calls": calls}


def is_answer(step: Step) -> bool:
    """Whether a step that has begun is an answer, and not calls or a plan of calls."""
    return step.node in {FINAL_RESPONSE, RESPOND} or (step.node == PLAN and step.plan is None and not step.calls)


def begins_answer(events: Iterable[object]) -> bool:
    """Whether one of these events is an answer of the model."""
    return any(isinstance(event, Step) and event.status == "started" and is_answer(event) for event in events)
