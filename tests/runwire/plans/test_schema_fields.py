"""Which fields a schema declares, and their types."""

from typing import Any

import pytest

from runwire.plans.schema_fields import Fields, Fit, Missing, fit
from runwire.plans.schema_folding import Steps

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
TREE = {"$defs": {"N": {"properties": {"v": INTEGER, "next": {"$ref": "#/$defs/N"}}}}, "$ref": "#/$defs/N"}
EITHER = {"anyOf": [{"properties": {"a": STRING}}, {"properties": {"b": INTEGER}}]}


def inside(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def found(schema: Any, path: str) -> list[str] | None:
    """The types at a path; None: it leads nowhere."""
    fields = Fields(schema, Steps())
    place = fields.find(tuple(path.split(".")))
    return None if isinstance(place, Missing) else sorted(fields.types(place))


@pytest.mark.parametrize(
    ("schema", "path", "types"),
    [
        (inside(a=STRING), "a", ["string"]),
        ({"properties": {"a": STRING}}, "a", ["string"]),
        (inside(a={"type": ["string", "null"]}), "a", ["null", "string"]),
        (inside(a={"const": 1}), "a", ["integer"]),
        (inside(a={"enum": ["a", None, 1.5, True]}), "a", ["boolean", "null", "number", "string"]),
        (inside(a={"enum": [1, [], {}]}), "a", ["array", "integer", "object"]),
        (inside(a={"type": "string", "nullable": True}), "a", ["null", "string"]),
        (inside(a={"$ref": "#/$defs/S", "nullable": True}) | {"$defs": {"S": STRING}}, "a", ["null", "string"]),
        (inside(a={}), "a", ["any"]),
        (inside(a=True), "a", ["any"]),
        (inside(a={"type": "unheard-of"}), "a", ["any"]),
        (inside(a={"items": STRING}), "a", ["array"]),
        (inside(a={"additionalProperties": False}), "a", ["object"]),
        # combined
        (inside(a={"anyOf": [STRING, NULL]}), "a", ["null", "string"]),
        (inside(a={"anyOf": [STRING, {}]}), "a", ["any"]),
        (inside(a={"type": "string", "anyOf": [STRING, INTEGER]}), "a", ["string"]),
        (inside(a={"allOf": [{"type": ["string", "null"]}, {"type": ["string", "integer"]}]}), "a", ["string"]),
        (inside(a={"allOf": [{"type": "number"}, INTEGER]}), "a", ["integer"]),
        (inside(a={"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "x"}]}), "a", ["string"]),
        (EITHER, "a", ["string"]),
        ({"anyOf": [{"properties": {"a": STRING}}, {"properties": {"a": INTEGER}}]}, "a", ["integer", "string"]),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": INTEGER}}]}, "a", ["integer"]),
        (inside(x={"anyOf": [{"properties": {"a": STRING}}, {"type": "object"}]}), "x.a", ["any"]),
        # references
        (TREE, "next.next.next.v", ["integer"]),
        ({"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": inside(x=STRING)}}, "x", ["string"]),
        (inside(a={"$ref": "#/properties/b/items/0"}, b={"items": [STRING]}), "a", ["string"]),
        (inside(a={"$ref": "#"}, b=INTEGER), "a.a.b", ["integer"]),
        (inside(a={"$ref": "https://example.com/s.json"}), "a.b.c", ["any"]),
        (inside(a={"$ref": "#/$defs/gone"}), "a.b", ["any"]),
        (inside(a={"$ref": "#anchor"}), "a.b", ["any"]),
        (inside(a={"$ref": "https://example.com/s.json", "properties": {"x": STRING}}), "a.y", ["any"]),
        (inside(a={"$ref": "#/$defs/N", "properties": {"w": STRING}}) | {"$defs": TREE["$defs"]}, "a.w", ["string"]),
        # objects
        (inside(a={"additionalProperties": STRING}), "a.any-key", ["string"]),
        (inside(a={"properties": {"b": INTEGER}, "additionalProperties": STRING}), "a.c", ["string"]),
        ({"additionalProperties": STRING}, "a", ["string"]),
        (inside(a={"properties": {"b": INTEGER}, "additionalProperties": True}), "a.c", ["any"]),
        (inside(a={"patternProperties": {"^x": INTEGER, "y$": {"type": "number"}}}), "a.x_y", ["integer"]),
        (inside(a={"patternProperties": {"(?=x)": INTEGER}}), "a.other", ["any"]),
        (inside(a={"type": "object"}), "a.b.c", ["any"]),
        (inside(a={"type": ["object", "null"], "properties": {"b": STRING}}), "a.b", ["string"]),
        (inside(a={"enum": [{"b": 1}]}), "a.b", ["any"]),
        # lists
        (inside(a={"items": STRING}), "a.0", ["string"]),
        (inside(a={"items": STRING}), "a." + "9" * 5000, ["string"]),
        (inside(a={"type": "array"}), "a.3", ["any"]),
        (inside(a={"prefixItems": [STRING, INTEGER], "items": {"type": "boolean"}}), "a.2", ["boolean"]),
        (inside(a={"prefixItems": [STRING]}), "a.1", ["any"]),
        (inside(a={"items": [STRING], "additionalItems": INTEGER}), "a.1", ["integer"]),
        (inside(a={"type": ["object", "array"], "items": STRING, "additionalProperties": INTEGER}), "a.x", ["integer"]),
        (inside(a={"anyOf": [{"items": inside(u=STRING)}, NULL]}), "a.0.u", ["string"]),
    ],
)
def test_fields(schema: Any, path: str, types: list[str]) -> None:
    """What is declared, or open below the root, is there."""
    assert found(schema, path) == types


def compared(source: Any, target: Any) -> Fit:
    steps = Steps()
    return fit(Fields(source, steps), source, Fields(target, steps), target)


def nested(schema: Any, levels: int) -> Any:
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("source", "target", "fits", "may_be_null"),
    [
        (STRING, STRING, True, False),
        (INTEGER, {"type": "number"}, True, False),
        ({"type": "number"}, INTEGER, False, False),
        (STRING, INTEGER, False, False),
        (STRING, nested(STRING, 1), False, False),
        ({"type": "boolean"}, {"type": ["boolean", "string"]}, True, False),
        ({}, STRING, True, False),
        ({"enum": []}, STRING, True, False),
        (STRING, {}, True, False),
        (NULL, STRING, False, False),
        (NULL, {"type": ["string", "null"]}, True, False),
        ({"type": ["string", "null"]}, STRING, True, True),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}, True, False),
        ({"type": ["string", "null"]}, INTEGER, False, False),
        (inside(a=STRING), inside(b=INTEGER), True, False),
        (nested(STRING, 1), nested(STRING, 1), True, False),
        (nested(inside(a=STRING), 1), nested(STRING, 1), False, False),
        (nested(STRING, 1), {"type": "array"}, True, False),
        (nested(INTEGER, 3), nested(STRING, 3), False, False),
        (nested(INTEGER, 4), nested(STRING, 4), True, False),
        ({"prefixItems": [STRING, INTEGER], "items": False}, nested(STRING, 1), False, False),
        ({"prefixItems": [STRING, INTEGER]}, nested(STRING, 1), True, False),
        (nested({"type": ["string", "null"]}, 1), nested(STRING, 1), True, True),
        ({"type": ["array", "null"], "items": INTEGER}, nested(STRING, 1), False, False),
        ({"type": ["array", "string"], "items": INTEGER}, {"type": ["array", "string"], "items": STRING}, True, False),
    ],
)
def test_what_fits(source: Any, target: Any, fits: bool, may_be_null: bool) -> None:  # noqa: FBT001, a row of the table
    """Types that the target takes; null is left to the run, with a warning."""
    found = compared(source, target)
    assert (found.fits, found.may_be_null) == (fits, may_be_null)
