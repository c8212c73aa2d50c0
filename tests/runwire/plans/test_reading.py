"""What a model gave, as an answer, a plan, or what is wrong with it."""

from typing import Any

import pytest

from contracts.runs.decisions import Plan, PlanCall, PlanError
from runwire.plans import read_plan


def codes(value: Any) -> list[tuple[int | None, str]]:
    found = read_plan(value)
    assert isinstance(found, list)
    assert all(isinstance(error, PlanError) for error in found)
    return [(error.tool_index, error.error.type) for error in found]


def test_a_plan() -> None:
    """What may be missing is filled in."""
    plan = read_plan({"type": "tool_calls", "calls": [{"tool_name": "a"}, {"tool_name": "b", "arguments": {"x": 1}}]})
    assert plan == Plan(calls=[PlanCall(tool_name="a"), PlanCall(tool_name="b", arguments={"x": 1})])
    more = {"type": "tool_calls", "reasoning": "r", "k": 1, "calls": [{"tool_name": "a", "arguments": {}, "id": 3}]}
    assert read_plan(more) == Plan(reasoning="r", calls=[PlanCall(tool_name="a")])
    assert read_plan(more | {"reasoning": None}) == Plan(calls=[PlanCall(tool_name="a")])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "unknown_type"),
        ("text", "unknown_type"),
        ({"type": "plan", "content": "x"}, "unknown_type"),
        ({"type": ["tool_calls"], "calls": [{"tool_name": "a"}]}, "unknown_type"),
        ({"calls": [{"tool_name": "a"}]}, "unknown_type"),
        ({"type": "direct_response"}, "content_missing"),
        ({"type": "direct_response", "content": {"text": "x"}}, "content_missing"),
        ({"type": "tool_calls"}, "calls_missing"),
        ({"type": "tool_calls", "calls": {"tool_name": "a"}}, "calls_missing"),
        ({"type": "tool_calls", "calls": []}, "empty_plan"),
    ],
)
def test_what_is_no_plan(value: Any, code: str) -> None:
    """One error, about the whole."""
    assert codes(value) == [(None, code)]
