"""Runs the vectors of `action_normalization` through the one parser of model output, and back."""

from typing import Any

from contracts.runs.decisions import PlannerAction
from services.planner.replies.actions.normalize import normalize_action
from tests.conformance.compare import assert_same
from tests.support.five_fields import in_five_fields


def check(vector: dict[str, Any]) -> None:
    """Compare action or error; reasoning and the nodes of the alternates only where the vector names them."""
    given, expected = vector["input"], vector["expected"]
    if "legacy" in expected:
        action = PlannerAction.model_validate(given["dump"])
        assert_same(in_five_fields(action, given.get("thought")), expected["legacy"], "the legacy form")
        return
    result = normalize_action(
        given["object"] if given.get("text") is None else given["text"],
        given.get("reasoning_content"),
        tools=frozenset(given.get("tools") or ()),
        action_format=given.get("action_format") or "auto",
    )
    assert_same(result.error, expected.get("error"), f"the error (complaint: {result.complaint!r})")
    assert_same(result.action and result.action.model_dump(), expected.get("action"), "the action")
    if "reasoning" in expected:
        assert_same(result.reasoning, expected["reasoning"], "the reasoning")
    if "alternates" in expected:
        found = [action.model_dump() for action in result.alternates]
        assert_same(*_alike(found, expected["alternates"]), "the alternates")


def _alike(actual: list[dict[str, Any]], expected: list[Any]) -> tuple[list[Any], list[Any]]:
    """A vector may name an alternate by its node alone."""
    named = all(isinstance(item, str) for item in expected)
    return [item["next_node"] for item in actual] if named else actual, expected
