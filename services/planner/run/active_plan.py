"""The plan of a run with the strategy `planned`, from the model's decision to the answer. Pure data.

PLAN is the step that decides, EXECUTE carries out the calls, RESPOND writes the answer. A plan that was rejected has
ended at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contracts.actions import FINAL_RESPONSE
from contracts.events import Observed, Step
from contracts.plans import CallStatus

PLAN, EXECUTE, RESPOND = "plan", "execute", "respond"
"""Nodes of the steps."""


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

    def call_id(self, index: int) -> str:
        """Return the id of a call; it is numbered from 0, as templates number it."""
        return f"{self.step.step}-{index}"

    def statuses(self, outcomes: Mapping[str, Observed]) -> list[CallStatus]:
        """Return how each call has ended."""
        calls = self.step.plan.calls if self.step.plan is not None else []
        found = [outcomes.get(self.call_id(index)) for index in range(len(calls))]
        return ["not_executed" if each is None else _STATUS[each.status] for each in found]


_STATUS: dict[str, CallStatus] = {"succeeded": "success", "failed": "failed"}


def is_answer(step: Step) -> bool:
    """Whether a step that begins is an answer, and not calls or a plan of calls."""
    return step.node in {FINAL_RESPONSE, RESPOND} or (step.node == PLAN and step.plan is None and not step.calls)


def begins_answer(events: Iterable[object]) -> bool:
    """Whether one of these events is an answer of the model."""
    return any(isinstance(event, Step) and event.status == "started" and is_answer(event) for event in events)
