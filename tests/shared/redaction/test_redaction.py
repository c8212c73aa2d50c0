"""What the model sees of a tool's result: value and schema are walked together, and in doubt a field is hidden."""

from typing import Any

import pytest

from services.shared.redaction.annotations import read_annotations
from services.shared.redaction.separation import redact, separate
from services.shared.redaction.views import MAX_DEPTH

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


def test_a_schema_that_refers_only_to_itself_marks_nothing() -> None:
    """And does not turn for ever."""
    assert redact(
        {"a": "seen"}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    ) == {"a": "seen"}


def test_a_schema_nested_without_end_is_read() -> None:
    """Reading does not recurse."""
    schema: dict[str, Any] = BLOB
    for _ in range(5_000):
        schema = {"allOf": [schema]}
    assert redact("LEAK", schema) == HIDDEN


def test_the_input_is_not_changed_and_unmarked_parts_are_shared() -> None:
    """Only what leads to a mark is copied."""
    value = {"rows": [1, 2, 3], "blob": "LEAK"}
    shown = redact(value, obj(rows={"type": "array"}, blob=BLOB))
    assert value["blob"] == "LEAK"
    assert shown["rows"] is value["rows"]


def test_many_values_of_one_tool_share_a_schema_that_was_read_once() -> None:
    """Reading the schema is the smaller part of the work, but still one."""
    annotations = read_annotations(obj(blob=BLOB))
    assert [redact({"blob": text}, annotations)["blob"] for text in ("a", "bb")] == [
        "<artifact:str size=1B>",
        "<artifact:str size=2B>",
    ]


def test_a_long_list_of_unions_costs_about_as_much_per_item_as_a_short_one() -> None:
    """Ten thousand items, each judged once."""
    member = {"anyOf": [obj(kind={"const": "a"}, blob=BLOB), obj(kind={"const": "b"}, text=TEXT)]}
    value = [{"kind": "a", "blob": "LEAK"}, {"kind": "b", "text": "seen"}] * 5_000
    shown = redact(value, {"type": "array", "items": member})
    assert shown == [{"kind": "a", "blob": HIDDEN}, {"kind": "b", "text": "seen"}] * 5_000
