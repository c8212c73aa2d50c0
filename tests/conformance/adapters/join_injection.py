"""ACTIONS 5: a plan's branches, and the join that receives their results."""

from typing import Any

from contracts.tools import ToolSpec
from services.planner.joins import Branch, JoinAbsent, JoinCall, JoinInvalid, JoinSkipped, check_plan, resolve_join, results_of
from tests.support.vector_tokens import assert_matches, decoded

JOIN = "j"
TYPES = {"list": "array", "int": "integer", "str": "string", "dict": "object", "bool": "boolean", "float": "number"}


def check(vector: dict[str, Any]) -> None:
    """Check the plan, settle its branches as the vector says, and resolve the join."""
    given, expected = decoded(vector["input"]), decoded(vector["expected"])
    specs = known_tools(given)
    rejected = bool(check_plan({"steps": given["steps"]}, specs))
    assert rejected == (expected.get("plan") == "rejected")
    if rejected:
        assert expected.get("ran", []) == []
        return
    branches = [Branch(step["node"], step.get("args", {}), step.get("result"), failure=step.get("error")) for step in given["steps"]]
    outcome = resolve_join({"join": given.get("join")}, branches, specs)
    if isinstance(outcome, JoinCall) and "join_error" in given:
        outcome = JoinInvalid("tool_error", given["join_error"])
    compare(outcome, expected)
    if "results" in expected:
        assert_matches(results_of(branches), expected["results"], "the results for the model")
    if "ran" in expected:
        assert expected["ran"] == [branch.node for branch in branches] + ([JOIN] if isinstance(outcome, JoinCall) else [])


def compare(outcome: Any, expected: dict[str, Any]) -> None:
    """Compare the join's outcome, its code or reason, and the arguments of a call."""
    names = {JoinAbsent: "absent", JoinCall: "called", JoinSkipped: "skipped", JoinInvalid: "error"}
    assert names[type(outcome)] == expected["join"], outcome
    if isinstance(outcome, JoinCall) and "args" in expected:
        assert_matches(outcome.args, expected["args"], "the arguments of the join")
    if isinstance(outcome, JoinSkipped):
        assert outcome.reason == expected["reason"]
    if isinstance(outcome, JoinInvalid):
        assert outcome.code == expected["code"]
        assert "\n" not in outcome.line


def known_tools(given: dict[str, Any]) -> dict[str, ToolSpec]:
    """Return the tools of a vector: every step that yields something, with a text `q` where it succeeds, and the join."""
    question = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    specs = {JOIN: ToolSpec(name=JOIN, input_schema=join_schema(given.get("join_schema", {})))}
    for step in given["steps"]:
        if "result" in step or "error" in step:
            specs[step["node"]] = ToolSpec(name=step["node"], input_schema={"type": "object"} if "error" in step else question)
    return specs


def join_schema(arguments: dict[str, str]) -> dict[str, Any]:
    """Return the schema of the join's arguments, all of them optional."""
    properties = {name: {"type": TYPES[kind]} if kind in TYPES else {} for name, kind in arguments.items()}
    return {"type": "object", "properties": properties}
