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
    calls = [{"tool_name": "a", "id": 3}, {"tool_name": "b", "arguments": {"x": 1}}]
    read = [PlanCall(tool_name="a"), PlanCall(tool_name="b", arguments={"x": 1})]
    assert read_plan({"type": "tool_calls", "reasoning": "r", "calls": calls}) == Plan(reasoning="r", calls=read)
    assert read_plan({"type": "tool_calls", "reasoning": None, "calls": calls}) == Plan(calls=read)


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
