"""Templates: how they read, how a plan that holds them is checked and resolved, and what a plan leads to.

`parse`, `validate` and `resolve` go through the pure functions. What a plan leads to, `execute` and the stages of
`plan_output`, is a whole run: `_planned_runs.check_run(vector)` compares it.
"""

from typing import Any

from contracts.runs.decisions import Plan, PlanCall
from contracts.tools.messages import ToolSpec
from runwire import plans
from tests.conformance.compare import assert_same

from ._planned_runs import check_run, errors_of
from ._scripted_tools import spec_of

OF_A_RUN = {"stages", "ai_calls", "errors", "warnings"}


async def check(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expected"]
    match vector["op"]:
        case "parse":
            assert_same(parsed(given["text"]), expected, "the template")
        case "validate":
            assert_same(validated(given, expected), expected, "the check")
        case "resolve":
            assert_same(resolved(given, expected.get("error", {})), expected, "the arguments")
        case "plan_output":
            # A reply of any other form is read by the planner, in the run. So is a plan that its check rejects.
            plan = given.get("plan")
            is_rejected = expected.get("kind") == "invalid" and isinstance(plans.read_plan(plan), Plan)
            if isinstance(plan, dict) and not is_rejected:
                wanted = {key: value for key, value in expected.items() if key not in OF_A_RUN}
                assert_same(classified(plan, wanted), wanted, "the plan")
            await check_run(vector)
        case "execute":
            await check_run(vector)
        case other:
            raise AssertionError(f"an operation {other!r} is not known")


def parsed(text: str) -> dict[str, Any]:
    template = plans.parse_template(text)
    found = None if template is None else {"tool_index": template.index, "path": list(template.path)}
    return {"candidate": plans.is_candidate(text), "ref": found}


def validated(given: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What a check finds; of an error only the fields that a vector knows."""
    result = plans.check_plan([PlanCall.model_validate(call) for call in given["calls"]], catalogue(given["tools"]))
    found = {
        "valid": result.valid,
        "errors": errors_of(result.errors, expected.get("errors", [])),
        "warnings": [warning.model_dump() for warning in result.warnings],
    }
    return {name: value for name, value in found.items() if name in expected}


def catalogue(tools: list[dict[str, Any]]) -> dict[str, ToolSpec]:
    """The tools by name. A vector names schemas as MCP does."""
    return {tool["name"]: spec_of(tool) for tool in tools}


def resolved(given: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The arguments with their values, or the error with the details that the vector names."""
    try:
        return {"arguments": plans.resolve(given["arguments"], given["outputs"])}
    except plans.MissingOutputField as missing:
        found = {"type": "missing_output_field", "field": missing.field, "template": missing.template}
        return {"error": {key: value for key, value in found.items() if key in wanted}}


def classified(plan: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """What a plan is, with the details that the vector names."""
    match plans.read_plan(plan):
        case plans.DirectResponse() as read:
            found: dict[str, Any] = {"kind": "direct_response", "content": read.content}
        case Plan() as read:
            calls = [call.model_dump() for call in read.calls]
            names = [call.tool_name for call in read.calls]
            counted = {"tool_count": len(calls), "tool_names": names, "calls": calls}
            found = {"kind": "tool_calls", "reasoning": read.reasoning, **counted}
        case errors:
            found = {"kind": "invalid", "error": errors[0].error.type}
            if isinstance(wanted.get("error"), dict):
                found["error"] = {"type": found["error"]}
    return {key: value for key, value in found.items() if key in wanted}
