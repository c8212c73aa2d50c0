"""Everything that can be said of a plan without running it."""

from typing import Any

from contracts.tools.messages import ToolSpec
from runwire.plans import PlanBounds, report

STRING = {"type": "string"}
TOOLS = {
    "find": ToolSpec(name="find", output_schema={"properties": {"id": STRING, "maybe": {"type": ["string", "null"]}}}),
    "send": ToolSpec(name="send", input_schema={"type": "object", "properties": {"id": STRING}}),
}
FIND = {"tool_name": "find"}


def plan(**arguments: Any) -> dict[str, Any]:
    """A call of `find`, then one of `send`."""
    return {"type": "tool_calls", "calls": [FIND, {"tool_name": "send", "arguments": arguments}]}


def test_what_is_no_plan_of_calls() -> None:
    """A direct response is valid; what cannot be read has its errors, and nothing is resolved."""
    answer = report({"type": "direct_response", "content": "Hello"}, TOOLS, outputs=[])
    assert (answer.valid, answer.kind, answer.lines, answer.resolved) == (True, "direct_response", [], None)
    wrong = report({"calls": []}, TOOLS, outputs=[])
    assert (wrong.valid, wrong.kind, wrong.resolved) == (False, "invalid", None)
    assert [error.error.type for error in wrong.errors] == ["empty_plan"]
    assert wrong.lines == ["calls is empty; plan at least one call, or give a direct_response"]
    assert report(5, TOOLS).kind == report({"type": None, "calls": [FIND]}, TOOLS).kind == "invalid"


def test_errors_and_warnings_have_a_line_each() -> None:
    """Errors first."""
    found = report(plan(id="$0.output.maybe", x="$0.output.gone"), TOOLS, outputs=[{}])
    assert (found.valid, found.kind, found.resolved) == (False, "tool_calls", None)
    assert [line.partition(":")[0] for line in found.lines] == [
        "Call 1 (send), argument x",
        "Call 1 (send), argument id",
    ]
    many = report(plan(x=["$0.output"] * 150), TOOLS)
    assert (len(many.errors), many.errors_left_out) == (100, 50)
    assert many.lines[-1] == "50 more errors are left out"
    assert [error.error.type for error in report(plan(), TOOLS, PlanBounds(max_calls=1)).errors] == ["too_many_calls"]


def test_templates_are_resolved_where_there_are_outputs() -> None:
    """Each call with the outputs of those before it; what is missing is said."""
    given = plan(id="$0.output.id")
    assert report(given, TOOLS).resolved is None
    assert report(given, TOOLS, outputs=[{"id": "7"}, "later"]).resolved == [{}, {"id": "7"}]
    lacking = report(given, TOOLS, outputs=[{"other": 1}])
    assert (lacking.valid, lacking.resolved) == (True, [{}, None])
    assert lacking.lines == [
        "Call 1 would fail: the output of call 0 has no id, which $0.output.id refers to",
    ]
    assert report(given, TOOLS, outputs=[]).resolved == [{}, None]


def test_what_a_model_has_to_give_is_said() -> None:
    """The type of the plan, and the arguments that a tool requires."""
    assert report({"calls": [FIND]}, TOOLS).lines == [
        'The plan has no type. A model has to give it: "type": "tool_calls"'
    ]
    strict = {"find": TOOLS["find"].model_copy(update={"input_schema": {"required": ["q"]}})}
    found = report({"calls": [FIND]}, strict)
    assert not found.valid
    assert found.lines == ["Call 0 (find), argument q: the tool requires it; correct the argument"]
