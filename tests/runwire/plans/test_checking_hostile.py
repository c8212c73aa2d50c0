"""Hostile plans and schemas: bounded work, counted in steps, and bounded findings."""

from typing import Any

import pytest

from contracts.runs.decisions import PlanCall
from contracts.tools.messages import ToolSpec
from runwire.plans import PlanBounds, PlanCheck, check_plan, template_paths
from runwire.plans.checking import MAX_ERROR_BYTES, MAX_ERRORS, MAX_WARNINGS
from runwire.plans.schema_fields import Fields
from runwire.plans.schema_folding import MAX_STEPS, Steps

STRING = {"type": "string"}


def tools(output: Any, arguments: Any = None) -> dict[str, ToolSpec]:
    schemas = {"output_schema": output} | ({} if arguments is None else {"input_schema": arguments})
    return {"t": ToolSpec(name="t", **schemas)}


def check(output: Any, *templates: str, arguments: Any = None) -> PlanCheck:
    """Check a second call with a list of templates."""
    calls = [PlanCall(tool_name="t"), PlanCall(tool_name="t", arguments={"x": list(templates)})]
    return check_plan(calls, tools(output, arguments))


def codes(result: PlanCheck) -> list[tuple[int | None, str]]:
    """Call and code of each error."""
    return [(error.tool_index, error.error.type) for error in result.errors]


def steps_of(schema: Any, *paths: str) -> int:
    """The steps that looking up these paths takes."""
    steps = Steps()
    fields = Fields(schema, steps)
    for path in paths:
        found = fields.find(tuple(path.split(".")))
        fields.types(found)
    return MAX_STEPS - steps.left


def test_too_many_calls_are_not_read() -> None:
    """One error about the whole."""
    calls = [PlanCall(tool_name="ghost", arguments={"x": "$9.output.a"})] * 65
    result = check_plan(calls, {})
    (error,) = result.errors
    assert (error.tool_index, error.argument, error.template) == (None, "", "")
    assert error.error.model_dump() == {"type": "too_many_calls", "limit": 64, "found": 65}
    assert codes(check_plan(calls[:2], {}, PlanBounds(max_calls=1))) == [(None, "too_many_calls")]


def nested(levels: int) -> Any:
    value: Any = "$5.output.x"
    for _ in range(levels):
        value = [value]
    return value


def test_a_call_that_is_too_large_is_not_read_and_the_others_are() -> None:
    """By the bytes of its compact JSON, and by its depth."""
    room = (64 << 10) - len('{"x":""}')
    calls = [
        PlanCall(tool_name="ghost", arguments={"x": "ä" * (room // 2) + "$9.output.a"}),
        PlanCall(tool_name="ghost", arguments={"x": nested(32)}),
        PlanCall(tool_name="ghost", arguments={"x": nested(100_000)}),
        PlanCall(tool_name="t", arguments={"x": "$9.output.a"}),
        PlanCall(tool_name="t", arguments={"x": 10**5000}),
        PlanCall(tool_name="t", arguments={"x": "ä" * (room // 2)}),
        PlanCall(tool_name="t", arguments={"x": nested(31)}),
    ]
    assert codes(check_plan(calls, tools(None))) == [
        (0, "arguments_too_large"),
        (1, "too_deep"),
        (2, "too_deep"),
        (3, "index_out_of_bounds"),
        (4, "arguments_too_large"),
        (6, "no_output_schema"),
    ]


def test_errors_and_warnings_are_counted_beyond_a_hundred() -> None:
    """And listed up to 64 KiB and one error more, whatever their texts are."""
    result = check({"properties": {}}, *(f"$0.output.f{number}" for number in range(1_000)))
    assert (len(result.errors), result.errors_left_out) == (MAX_ERRORS, 1_000 - MAX_ERRORS)
    result = check({"properties": {}}, *["see $0.output.a"] * 1_000)
    assert (len(result.warnings), result.valid) == (MAX_WARNINGS, True)
    many = {"properties": {f"{number:04}{'ß' * 500}": STRING for number in range(500)}}
    result = check(many, *(f"$0.output.{number}{'x' * 600}" for number in range(80)))
    assert len(result.errors) + result.errors_left_out == 80
    sizes = [len(error.model_dump_json().encode()) for error in result.errors]
    assert sum(sizes[:-1]) < MAX_ERROR_BYTES
    assert max(sizes) < MAX_ERROR_BYTES
    assert len(result.errors[0].template) == 500
    assert {len(name) for name in result.errors[0].error.model_dump()["available_fields"]} == {200}


def chain(length: int) -> dict[str, Any]:
    """References to references, which carry a title and so are followed one by one."""
    links = {str(number): {"$ref": f"#/$defs/{number + 1}", "title": "t"} for number in range(length)}
    return {"$defs": {**links, str(length): {"properties": {"a": STRING}}}, "$ref": "#/$defs/0"}


def deep(levels: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": STRING}}
    for _ in range(levels):
        schema = {keyword: [schema]}
    return schema


MEMBERS = [{"$ref": "#", "title": str(number)} for number in range(4_000)]
RECURSIVE = {"properties": {"a": {"anyOf": [{"$ref": "#"}, *MEMBERS, {"type": "null"}]}}}
WIDE = {"properties": {f"field{number}": {"type": ["string", "null"]} for number in range(10_000)}}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (chain(10_000), "a"),
        (deep(10_000, "anyOf"), "a"),
        (WIDE, "field9999"),
        (RECURSIVE, "a"),
        (RECURSIVE, "a.a.a.a.a"),
        ({"properties": {"a": {"additionalProperties": {"$ref": "#/properties/a"}}}}, ".".join("a" * 32)),
    ],
)
def test_hostile_schemas_within_the_steps(schema: Any, path: str) -> None:
    """They are read: the work is in proportion to the schema, not to the ways through it."""
    assert check(schema, f"$0.output.{path}").valid
    assert steps_of(schema, path) < 60_000
    assert template_paths(schema)


def test_nothing_is_fetched() -> None:
    """A reference out of the document leaves its place unknown."""
    for reference in ("https://example.com/s.json", "file:///etc/passwd", "//host/x", "http://[", "urn:x#/a", ""):
        schema = {"properties": {"a": {"$ref": reference}}}
        assert check(schema, "$0.output.a.b.c", arguments={"properties": {"x": {"$ref": reference}}}).valid, reference


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)+$", "(.*)*x", "a{1000}{1000}", r"\w{200}", "a{9999999999}", "(?=a)", "(", "x" * 2_000],
)
def test_patterns_are_matched_in_linear_time_or_not_at_all(pattern: str) -> None:
    """What cannot be matched leaves its members unknown."""
    schema = {"properties": {"p": {"patternProperties": {pattern: STRING}}}}
    assert check(schema, f"$0.output.p.{'a' * 5_000}!").valid
