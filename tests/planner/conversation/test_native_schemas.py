"""Schemas of functions in the form that strict providers take."""

from typing import Any

import pytest

from services.planner.conversation.native import flat_schema, function_schema

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"type": "object"}, {}),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, {"a": TEXT}),
        ({"properties": {"a": True, "b": False}}, {"a": {}}),
        ({"properties": {"a": {"type": "array"}}}, {"a": {"type": "array", "items": {}}}),
        (
            {"properties": {"a": {"type": ["array", "null"], "items": True}}},
            {"a": {"type": ["array", "null"], "items": {}}},
        ),
        ({"properties": {"a": {"prefixItems": [TEXT, TEXT]}}}, {"a": {"items": TEXT}}),
        (
            {"properties": {"a": {"type": "array", "items": [TEXT, {"type": "array"}], "additionalItems": False}}},
            {"a": {"type": "array", "items": {"anyOf": [TEXT, {"type": "array", "items": {}}]}}},
        ),
        (
            {"properties": {"a": {"type": "array", "items": {"type": "array"}}}},
            {"a": {"type": "array", "items": {"type": "array", "items": {}}}},
        ),
        ({"properties": {"a": {"const": "all"}}}, {"a": {"enum": ["all"], "type": "string"}}),
        ({"properties": {"a": {"enum": [1, 1, 2]}}}, {"a": {"enum": [1, 2], "type": "integer"}}),
        ({"properties": {"a": {"enum": [1, "x"]}}}, {"a": {"enum": [1, "x"]}}),
        ({"properties": {"a": {"enum": []}}}, {"a": {}}),
        ({"properties": {"a": {**TEXT, "required": True}}}, {"a": TEXT}),
        ({"properties": {"a": {"$ref": "#/anyOf/0"}}, "anyOf": [{"required": ["a"]}]}, {"a": {}}),
        ({"properties": {"a": {"$ref": "#/$defs/None"}}}, {"a": {}}),
    ],
)
def test_arguments_have_the_form_that_providers_take(given: dict[str, Any], sent: dict[str, Any]) -> None:
    """Here and at any depth; what was in that form stays as it was."""
    schema, _ = function_schema(given)
    assert (schema["type"], schema["properties"]) == ("object", sent)


@pytest.mark.parametrize(
    ("given", "properties", "required"),
    [
        ({"anyOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]}, {"a", "b"}, None),
        ({"oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"required": ["a"]}]}, {"a"}, ["a"]),
        ({"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]}, {"a", "b"}, ["a"]),
        ({"properties": {"a": TEXT}, "required": ["a", "b"], "not": {"required": ["c"]}}, {"a"}, ["a"]),
        ({"enum": [{"a": 1}]}, set(), None),
        (
            {
                "anyOf": [{"$ref": "#/$defs/A"}],
                "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"]}},
            },
            {"a"},
            ["a"],
        ),
    ],
)
def test_a_root_has_no_combinators_and_the_description_says_them(
    given: dict[str, Any], properties: set[str], required: list[str] | None
) -> None:
    """The arguments of all forms are offered; what all of them require is required."""
    schema, unsaid = function_schema(given)
    assert set(schema["properties"]) == properties
    assert schema.get("required") == required
    assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & set(schema)
    assert unsaid.startswith('The arguments must also fit this JSON Schema: {"')


def test_a_reference_at_the_root_is_resolved() -> None:
    """And what it names may refer to itself."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema, unsaid = function_schema({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert (schema, unsaid) == ({**node, "$defs": {"Node": node}}, "")
    assert function_schema({"$ref": "#"}) == ({"type": "object", "properties": {}}, "")


def test_a_flat_schema_has_names_and_simple_types_alone() -> None:
    """Of any type that is not simple it asks for a text."""
    given = {
        "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array", "items": {}}, "c": {"enum": [1]}},
        "required": ["a", "z"],
    }
    kinds = {"a": TEXT, "b": {"type": "array", "items": TEXT}, "c": TEXT}
    assert flat_schema(given) == {"type": "object", "properties": kinds, "required": ["a"]}
