"""Reads what a model gave as a plan.

Rule 1: what a plan does not need may be missing, and what it does not know is left alone.
Rule 2: the errors of all calls are collected, the first 100 of them. No value makes it raise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any

from contracts.runs.plans import DIRECT_RESPONSE, TOOL_CALLS, PlainError, Plan, PlanCall, PlanError
from runwire.plans.texts import MAX_ERRORS


@dataclass(frozen=True, slots=True)
class DirectResponse:
    """The model answers without tools."""

    content: str
    """As the model wrote it."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The other members of the object, unread."""


def read_plan(value: Any) -> DirectResponse | Plan | list[PlanError]:
    """Return the answer or the plan that a model gave as an object, or what is wrong with it, at most 100 errors."""
    if not isinstance(value, Mapping):
        return [_error("unknown_type")]
    kind = value.get("type")
    if kind == DIRECT_RESPONSE:
        content = value.get("content")
        others = {key: each for key, each in value.items() if key not in {"type", "content"}}
        return DirectResponse(content, others) if isinstance(content, str) else [_error("content_missing")]
    if kind != TOOL_CALLS:
        return [_error("unknown_type")]
    calls = value.get("calls")
    if not isinstance(calls, list):
        return [_error("calls_missing")]
    if not calls:
        return [_error("empty_plan")]
    if errors := list(islice(chain.from_iterable(map(_wrong, count(), calls)), MAX_ERRORS)):
        return errors
    reasoning = value.get("reasoning")
    return Plan(
        reasoning=reasoning if isinstance(reasoning, str) else "",
        calls=[PlanCall(tool_name=call["tool_name"], arguments=call.get("arguments", {})) for call in calls],
    )


def _wrong(index: int, call: Any) -> Iterator[PlanError]:
    members = call if isinstance(call, Mapping) else {}
    name = members.get("tool_name")
    if not isinstance(name, str) or not name:
        yield _error("tool_name_missing", index)
    if not isinstance(members.get("arguments", {}), dict):
        yield _error("arguments_not_object", index)


def _error(code: str, index: int | None = None) -> PlanError:
    return PlanError(tool_index=index, error=PlainError.model_validate({"type": code}))
