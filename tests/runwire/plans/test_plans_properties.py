"""Properties of plans: what a check accepts can be resolved, and nothing makes the rules of plans raise."""

import contextlib
import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.decisions import PlanCall
from contracts.tools.messages import ToolSpec
from runwire import plans

NAMES = st.sampled_from(["a", "b", "0", "1", "id"])
LEAVES: dict[str, Any] = {"string": "$0.output.a", "integer": 3, "number": 1.5, "boolean": True, "null": None}
SEGMENTS = st.lists(NAMES, min_size=1, max_size=4).map(".".join)
TEMPLATES = st.tuples(st.integers(0, 3), SEGMENTS).map(lambda pair: f"${pair[0]}.output.{pair[1]}")
TEXTS = st.one_of(TEMPLATES, st.text(alphabet="$0.output. ab\n٣", max_size=16), st.text(max_size=4))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
IN_PLACE = ["$ref", "$defs", "anyOf", "oneOf", "allOf"]
OF_OBJECTS = ["properties", "additionalProperties", "patternProperties", "unevaluatedProperties", "a", "b"]
KEYWORDS = st.sampled_from(["type", "items", "prefixItems", "enum", "const", "nullable", *IN_PLACE, *OF_OBJECTS])
SCHEMA_LEAVES = st.sampled_from(
    ["string", "object", "array", "null", "#", "#/properties/a", "#/$defs/a", "#/anyOf/0", True, False, None, 0]
)
ANY_SCHEMA = st.recursive(
    SCHEMA_LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=25,
)


@st.composite
def schemas_with_values(draw: st.DrawFn, levels: int = 3) -> tuple[dict[str, Any], Any]:
    """A schema all of whose members are required, and a value that conforms to it."""
    kind = draw(st.sampled_from([*LEAVES, *(["object", "object", "array", "map", "either", "ref"] if levels else [])]))
    if kind in LEAVES:
        return {"type": kind}, LEAVES[kind]
    if kind == "object":
        members = draw(st.dictionaries(NAMES, schemas_with_values(levels - 1), max_size=3))
        schema = {"properties": {name: part for name, (part, _) in members.items()}, "required": list(members)}
        return schema, {name: value for name, (_, value) in members.items()}
    inner, value = draw(schemas_with_values(levels - 1))
    if kind == "map":
        return {"type": "object", "additionalProperties": inner}, dict.fromkeys(("a", "b", "0", "1", "id"), value)
    if kind == "array":
        return {"type": "array", "items": inner}, [value] * 2
    if kind == "ref":
        return {"allOf": [inner], "description": "d"}, value
    return {"anyOf": [inner, inner | {"title": "the same"}]}, value


@given(schemas_with_values(), st.lists(TEMPLATES | TEXTS, max_size=6))
def test_what_is_accepted_is_resolved(made: tuple[dict[str, Any], Any], texts: list[str]) -> None:
    """Outputs that conform have every required field, so no template of a valid plan misses one."""
    schema, output = made
    tools = {"t": ToolSpec(name="t", output_schema=schema)}
    calls = [PlanCall(tool_name="t"), PlanCall(tool_name="t", arguments={"x": texts})]
    if plans.check_plan(calls, tools).valid:
        found = plans.resolve(calls[1].arguments, [output])["x"]
        assert len(found) == len(texts)
        assert [value for text, value in zip(texts, found, strict=True) if plans.parse_template(text) is None] == [
            text for text in texts if plans.parse_template(text) is None
        ]


@given(JSON, ANY_SCHEMA, ANY_SCHEMA, st.lists(JSON, max_size=3))
def test_nothing_raises_and_all_is_deterministic(plan: Any, output: Any, arguments: Any, outputs: list[Any]) -> None:
    """Whatever models and tools give; and nothing that was given is changed."""
    plans.read_plan(plan)
    given_arguments = plan if isinstance(plan, dict) else {"x": plan}
    spec = ToolSpec.model_construct(name="t", output_schema=output, input_schema=arguments)
    calls = [PlanCall(tool_name="t"), PlanCall(tool_name="t", arguments=given_arguments), PlanCall(tool_name="u")]
    before = copy.deepcopy((given_arguments, output, arguments))
    first = plans.check_plan(calls, {"t": spec})
    assert plans.check_plan(calls, {"t": copy.deepcopy(spec)}) == first
    assert repr((given_arguments, output, arguments)) == repr(before)
    for error in first.errors:
        assert plans.error_line(error, calls).isprintable()
        json.loads(error.model_dump_json())
    for warning in first.warnings:
        assert plans.warning_line(warning, calls).isprintable()
    for path in plans.template_paths(output if isinstance(output, dict) else {}):
        assert path.path or path.note
    with contextlib.suppress(plans.MissingOutputField):
        plans.resolve(given_arguments, outputs)


@given(ANY_SCHEMA.filter(lambda schema: isinstance(schema, dict)))
def test_every_path_that_is_listed_is_accepted(schema: dict[str, Any]) -> None:
    """By a check of the same schema."""
    paths = [path for path in plans.template_paths(schema) if path.path and "<" not in path.path]
    texts = [f"$0.output.{path.path}" for path in paths]
    spec = ToolSpec.model_construct(name="t", output_schema=schema, input_schema={})
    calls = [PlanCall(tool_name="t"), PlanCall(tool_name="t", arguments={"x": texts})]
    assert plans.check_plan(calls, {"t": spec}, plans.PlanBounds(max_depth=40)).valid
