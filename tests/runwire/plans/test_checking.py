"""Plans against the schemas of tools: order, rules and records of errors."""

from typing import Any

import pytest

from contracts.runs.decisions import PlanCall
from contracts.tools.messages import ToolSpec
from runwire.plans import PlanCheck, check_plan

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def tool(name: str, arguments: dict[str, Any] | None = None, output: dict[str, Any] | None = None) -> ToolSpec:
    """A tool with these properties; without `output` it declares none."""
    return ToolSpec(
        name=name,
        input_schema={"type": "object", "properties": arguments or {}},
        output_schema=None if output is None else {"type": "object", "properties": output},
    )


TOOLS = {
    spec.name: spec
    for spec in (
        tool(
            "source",
            output={
                "id": STRING,
                "count": INTEGER,
                "maybe": {"type": ["string", "null"]},
                "null": {"type": "null"},
                "art": {"type": "object", "properties": {"title": STRING}},
                "tags": {"type": "array", "items": STRING},
                "any": {},
            },
        ),
        tool(
            "sink",
            {
                "text": STRING,
                "number": {"type": "number"},
                "optional": {"type": ["string", "null"]},
                "list": {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER}}},
                "pair": {"prefixItems": [STRING, INTEGER]},
                "map": {"type": "object", "additionalProperties": INTEGER},
                "tags": {"type": "array", "items": STRING},
            },
            {"done": {"type": "boolean"}},
        ),
        tool("silent", {"x": STRING}),
    )
}


def check(*calls: tuple[str, dict[str, Any]]) -> PlanCheck:
    return check_plan([PlanCall(tool_name=name, arguments=arguments) for name, arguments in calls], TOOLS)


def second(arguments: dict[str, Any]) -> PlanCheck:
    """Check a call of `sink` behind one of `source`."""
    return check(("source", {}), ("sink", arguments))


def shown(result: PlanCheck) -> list[tuple[int | None, str, str]]:
    """Call, argument and code of each error."""
    return [(error.tool_index, error.argument, error.error.type) for error in result.errors]


def mismatch(field: str, source: list[str], target: list[str]) -> dict[str, Any]:
    """The record of a field of `source` that has other types than the argument."""
    types = {"source_types": source, "target_types": target}
    return {"type": "type_mismatch", "tool_name": "source", "field": field, **types}


@pytest.mark.parametrize(
    ("arguments", "argument", "error"),
    [
        ({"text": "$0.output"}, "text", {"type": "invalid_template_syntax"}),
        ({"text": "$0.output.id\n"}, "text", {"type": "invalid_template_syntax"}),
        ({"text": "$1.output.done"}, "text", {"type": "self_reference"}),
        (
            {"text": "$2.output.id"},
            "text",
            {"type": "index_out_of_bounds", "referenced_index": 2, "max_valid_index": 0},
        ),
        (
            {"text": "$99999999999999999999.output.id"},
            "text",
            {"type": "index_out_of_bounds", "referenced_index": 99999999999999999999, "max_valid_index": 0},
        ),
        (
            {"list": [{}, {"n": "$0.output.art.n"}]},
            "list[1].n",
            {
                "type": "field_not_found",
                "tool_name": "source",
                "tool": "source",
                "field": "art.n",
                "available_fields": ["title"],
            },
        ),
        ({"number": "$0.output.id"}, "number", mismatch("id", ["string"], ["number"])),
        ({"text": "$0.output.null"}, "text", mismatch("null", ["null"], ["string"])),
        ({"map": {"a.b": "$0.output.tags.0"}}, "map.a.b", mismatch("tags.0", ["string"], ["integer"])),
        ({"pair": ["a", "$0.output.id"]}, "pair[1]", mismatch("id", ["string"], ["integer"])),
        ({"list": "$0.output.tags"}, "list", mismatch("tags", ["array"], ["array"])),
    ],
)
def test_records_of_errors(arguments: dict[str, Any], argument: str, error: dict[str, Any]) -> None:
    """Each has the call, the argument, the template and the details of its code."""
    result = second(arguments)
    (found,) = result.errors
    assert not result.valid
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


def test_warnings_do_not_keep_a_plan_from_running() -> None:
    """They come in the order of the arguments."""
    result = second({"text": "$0.output.maybe", "b": "see $0.output.id", "optional": "$0.output.maybe"})
    assert result.valid
    assert [(each.tool_index, each.argument, each.warning) for each in result.warnings] == [
        (1, "text", "nullable_source"),
        (1, "b", "embedded_template_not_resolved"),
    ]
