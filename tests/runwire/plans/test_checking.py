"""Plans against the schemas of tools: order, rules and records of errors; tests/conformance has the usual ones."""

from typing import Any

import pytest

from contracts.runs.decisions import PlanCall
from contracts.tools.messages import ToolSpec
from runwire.plans import check_plan

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
SOURCE = {"id": STRING, "null": {"type": "null"}, "tags": {"type": "array", "items": STRING}}
SINK = {
    "text": STRING,
    "list": {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER}}},
    "pair": {"prefixItems": [STRING, INTEGER]},
    "map": {"type": "object", "additionalProperties": INTEGER},
}
TOOLS = {
    "source": ToolSpec(name="source", output_schema={"type": "object", "properties": SOURCE}),
    "sink": ToolSpec(name="sink", input_schema={"type": "object", "properties": SINK}),
}


def out_of_bounds(number: int) -> dict[str, Any]:
    """The record of a call that the plan does not have."""
    return {"type": "index_out_of_bounds", "referenced_index": number, "max_valid_index": 0}


def mismatch(field: str, source: list[str], target: list[str]) -> dict[str, Any]:
    """The record of a field of `source` that has other types than the argument."""
    types = {"source_types": source, "target_types": target}
    return {"type": "type_mismatch", "tool_name": "source", "field": field, **types}


@pytest.mark.parametrize(
    ("arguments", "argument", "error"),
    [
        ({"text": "$0.output.id\n"}, "text", {"type": "invalid_template_syntax"}),
        ({"text": "$1.output.done"}, "text", {"type": "self_reference"}),
        ({"text": "$2.output.id"}, "text", out_of_bounds(2)),
        ({"text": "$99999999999999999999.output.id"}, "text", out_of_bounds(99999999999999999999)),
        ({"text": "$0.output.null"}, "text", mismatch("null", ["null"], ["string"])),
        ({"map": {"a.b": "$0.output.tags.0"}}, "map.a.b", mismatch("tags.0", ["string"], ["integer"])),
        ({"pair": ["a", "$0.output.id"]}, "pair[1]", mismatch("id", ["string"], ["integer"])),
        ({"list": [{}, {"n": "$0.output.id"}]}, "list[1].n", mismatch("id", ["string"], ["integer"])),
        ({"list": "$0.output.tags"}, "list", mismatch("tags", ["array"], ["array"])),
    ],
)
def test_records_of_errors(arguments: dict[str, Any], argument: str, error: dict[str, Any]) -> None:
    """Each has the call, the argument, the template and the details of its code."""
    calls = [PlanCall(tool_name="source"), PlanCall(tool_name="sink", arguments=arguments)]
    (found,) = check_plan(calls, TOOLS).errors
    assert (found.tool_index, found.argument, found.error.model_dump()) == (1, argument, error)
    assert found.template in repr(arguments) or "\n" in found.template


def test_literals_are_checked_by_what_is_given_for_it() -> None:
    """It is told which strings are templates. A missing argument is said once."""
    schema = {"allOf": [{"required": ["a", "b"]}], "properties": {"a": STRING}}
    asked: list[tuple[Any, Any, list[bool]]] = []

    def faults(arguments: Any, wanted: Any, is_open: Any) -> list[tuple[str, str]]:
        asked.append((arguments, wanted, [is_open("$0.output.id"), is_open("$5.00 a month")]))
        return [("", '"a" is a required property'), ("b[0]", "3 is not of type")]

    calls = [PlanCall(tool_name="t", arguments={"b": [3]})]
    (missing, wrong) = check_plan(calls, {"t": ToolSpec(name="t", input_schema=schema)}, faults=faults).errors
    assert asked == [({"b": [3]}, schema, [True, False])]
    assert (missing.argument, missing.error.type) == ("a", "invalid_argument")
    assert (wrong.argument, wrong.error.model_dump()["reason"]) == ("b[0]", "3 is not of type")
