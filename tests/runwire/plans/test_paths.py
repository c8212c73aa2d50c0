"""What templates may name in the output of a tool."""

from typing import Any

from contracts.runs.decisions import PlanCall
from contracts.tools.messages import ToolSpec
from runwire.plans import TemplatePath, check_plan, template_paths
from runwire.plans.reading import MAX_PATHS

STRING = {"type": "string"}
TREE = {
    "type": "object",
    "$defs": {
        "Art": {"properties": {"title": STRING, "child": {"anyOf": [{"$ref": "#/$defs/Art"}, {"type": "null"}]}}}
    },
    "properties": {"artifact": {"$ref": "#/$defs/Art"}, "remote": {"$ref": "https://example.com/s.json"}},
}


def shown(schema: Any) -> list[str]:
    """Path, types and note of each in one line."""
    return [f"{path.path} {'|'.join(path.types)} {path.note}".strip() for path in template_paths(schema)]


def test_declared_paths_in_order() -> None:
    """Members, maps, lists and alternatives; names that no template can name are left out."""
    schema = {
        "properties": {
            "z": STRING,
            "a.b": STRING,
            "a b": STRING,
            "": STRING,
            "map": {"type": "object", "additionalProperties": {"properties": {"n": {"type": ["integer", "null"]}}}},
            "list": {"items": {"anyOf": [{"properties": {"u": STRING}}, STRING]}},
            "open": {"type": "object"},
            "any": {},
            "never": False,
        },
        "allOf": [{"properties": {"more": {"type": "boolean"}}}],
    }
    assert shown(schema) == [
        "z string",
        "map object",
        "map.<name> object",
        "map.<name>.n integer|null",
        "list array",
        "list.<number> object|string",
        "list.<number>.u string",
        "open object",
        "open.<name> any not declared",
        "any any",
        "more boolean",
    ]


def test_the_list_is_bounded() -> None:
    """The last entry says so."""
    found = template_paths({"properties": {f"f{number}": STRING for number in range(10_000)}})
    assert len(found) == MAX_PATHS + 1
    assert found[-1] == TemplatePath("", (), f"more than {MAX_PATHS} paths; the others are left out")


def test_every_path_that_is_shown_can_be_used() -> None:
    """A check accepts it."""
    for path in template_paths(TREE):
        template = "$0.output." + path.path.replace("<name>", "x").replace("<number>", "0")
        calls = [PlanCall(tool_name="t"), PlanCall(tool_name="t", arguments={"x": template})]
        assert check_plan(calls, {"t": ToolSpec(name="t", output_schema=TREE)}).valid, template
