"""What the model sees of a tool's result: value and schema are walked together, and in doubt a field is hidden."""

from typing import Any

import pytest

from services.shared.redaction.annotations import MAX_DEPTH
from services.shared.redaction.separation import separate

HIDDEN = "<artifact:str size=4B>"
BLOB = {"type": "string", "artifact": True}
TEXT = {"type": "string"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object schema whose properties are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


A: tuple[Any, Any] = ({"a": "LEAK"}, {"a": HIDDEN})
"""A value with a marked member, and what is shown of it."""


NODE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": TEXT, "blob": BLOB, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            "required": ["name"],
        }
    },
}


def chain(length: int) -> dict[str, Any]:
    """Nodes inside nodes; the innermost has a blob."""
    node: dict[str, Any] = {"name": "last", "blob": "LEAK", "next": None}
    for number in range(length):
        node = {"name": f"n{number}", "next": node}
    return node


@pytest.mark.parametrize("length", [MAX_DEPTH - 1, MAX_DEPTH, 300, 5_000])
def test_what_lies_too_deep_to_follow_is_hidden_as_a_whole(length: int) -> None:
    """Depth is no way around a mark."""
    parts = separate(chain(length), NODE)
    assert len(parts.artifacts) == 1
    innermost = parts.observation
    while isinstance(innermost.get("next"), dict):
        innermost = innermost["next"]
    assert str(innermost.get("blob", innermost["next"])).startswith("<artifact:")


def test_a_schema_nested_without_end_is_read() -> None:
    """Reading does not recurse."""
    schema: dict[str, Any] = BLOB
    for _ in range(5_000):
        schema = {"allOf": [schema]}
    assert separate("LEAK", schema).observation == HIDDEN


def test_the_input_is_not_changed_and_unmarked_parts_are_shared() -> None:
    """Only what leads to a mark is copied."""
    value = {"rows": [1, 2, 3], "blob": "LEAK"}
    shown = separate(value, obj(rows={"type": "array"}, blob=BLOB)).observation
    assert value["blob"] == "LEAK"
    assert shown["rows"] is value["rows"]


def test_a_long_list_of_unions_costs_about_as_much_per_item_as_a_short_one() -> None:
    """Ten thousand items, each judged once."""
    member = {"anyOf": [obj(kind={"const": "a"}, blob=BLOB), obj(kind={"const": "b"}, text=TEXT)]}
    value = [{"kind": "a", "blob": "LEAK"}, {"kind": "b", "text": "seen"}] * 5_000
    shown = separate(value, {"type": "array", "items": member}).observation
    assert shown == [{"kind": "a", "blob": HIDDEN}, {"kind": "b", "text": "seen"}] * 5_000
