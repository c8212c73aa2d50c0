"""Finds the plan in a reply of the model: the arguments of a native call, or an object in a text. Pure."""

import re
from contextlib import suppress
from typing import Any

from contracts.runs.plans import PLAN_TYPES, TOOL_CALLS, OverLimit, PlainError, PlanError
from services.planner.replies.actions.fast_path import well_formed_object
from services.planner.replies.actions.scan import Broken, Scan, ThoughtEnds
from services.planner.replies.strict_json import MAX_DEPTH, NotJson, loads_leniently

_FENCES = re.compile(r"```\w*\s*(\{[^`]*\})\s*```")
_FENCED = re.compile(r"```\w*\s*(\{.*\})\s*```", re.DOTALL)


class NoPlan(ValueError):
    """There is no object to read as a plan. `error`: of the broken one that is there; None: there is none at all."""

    def __init__(self, error: PlanError | None = None) -> None:
        super().__init__("no plan")
        self.error = error


def arguments_of(text: str, max_depth: int) -> Any:
    """Return the arguments of a native call as JSON. Raises NoPlan."""
    if not text.strip():
        return {}
    try:
        return loads_leniently(text)
    except NotJson as error:
        raise NoPlan(_broken(error, max_depth)) from None


def plan_in(text: str, max_depth: int) -> dict[str, Any]:
    """Return the object in a text that is meant as a plan. Raises NoPlan.

    That is the only one, else the first with a known type, else the first where none is broken.
    """
    stripped = text.strip(" \t\r\n")
    whole = well_formed_object(stripped, 0) if stripped.startswith("{") and stripped.endswith("}") else None
    if whole is not None:
        return whole[0]
    first: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    broken: NotJson | None = None
    for found in Scan(text).items():
        if isinstance(found, ThoughtEnds):
            first = plan = broken = None
        elif isinstance(found, Broken):
            broken = broken or found.error
        elif has_known_type(found.value):
            plan = plan or found.value
        else:
            first = first or found.value
    if plan is not None:
        return plan
    if broken is not None:
        raise NoPlan(_broken(broken, max_depth))
    if first is None:
        raise NoPlan
    return first


def plan_alone_in(text: str, max_depth: int) -> dict[str, Any]:
    """Return the plan that a text consists of, in a code fence or not. Raises NoPlan.

    A longer text may show a plan to people.
    """
    stripped = text.strip(" \t\r\n")
    fenced = _FENCED.fullmatch(stripped)
    body = fenced[1] if fenced is not None else stripped
    if not (body.startswith("{") and body.endswith("}")):
        raise NoPlan
    value = arguments_of(body, max_depth)
    if not isinstance(value, dict) or not has_known_type(value):
        raise NoPlan
    return value


def fenced_plans_in(text: str) -> list[dict[str, Any]]:
    """Return the plans of calls in the code fences of a text."""
    found = []
    for fence in _FENCES.finditer(text):
        with suppress(NotJson):
            value = loads_leniently(fence[1])
            if isinstance(value, dict) and value.get("type") == TOOL_CALLS:
                found.append(value)
    return found


def has_known_type(value: dict[str, Any]) -> bool:
    """Whether an object says that it is a plan, be it valid or not."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in PLAN_TYPES


def _broken(error: NotJson, max_depth: int) -> PlanError:
    if error.depth >= MAX_DEPTH:
        return PlanError(tool_index=None, error=OverLimit(type="too_deep", limit=max_depth))
    return PlanError(tool_index=None, error=PlainError(type="unparseable"))
