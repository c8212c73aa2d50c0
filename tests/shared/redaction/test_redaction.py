"""What the model sees of a tool's result: value and schema are walked together, and in doubt a field is hidden."""

from typing import Any

import pytest

from services.shared.redaction.annotations import read_annotations
from services.shared.redaction.separation import collect, redact, separate
from services.shared.redaction.views import MAX_DEPTH

HIDDEN = "<artifact:str size=4B>"
BLOB = {"type": "string", "artifact": True}
TEXT = {"type": "string"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object schema whose properties are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


A: tuple[Any, Any] = ({"a": "LEAK"}, {"a": HIDDEN})
"""A value with a marked member, and what is shown of it."""

HIDING = {
    "property": (obj(blob=BLOB), {"blob": "LEAK"}, {"blob": HIDDEN}),
    "nested": (obj(a=obj(blob=BLOB)), {"a": {"blob": "LEAK"}}, {"a": {"blob": HIDDEN}}),
    "list": (obj(a={"items": obj(blob=BLOB)}), {"a": [{"blob": "LEAK"}]}, {"a": [{"blob": HIDDEN}]}),
    "marked item": ({"type": "array", "items": BLOB}, ["LEAK", "LEAK"], [HIDDEN, HIDDEN]),
    "tuple": ({"prefixItems": [TEXT, BLOB], "items": TEXT}, ["a", "LEAK", "b"], ["a", HIDDEN, "b"]),
    "tuple of older drafts": (
        {"items": [TEXT, BLOB], "additionalItems": BLOB},
        ["a", "LEAK", "LEAK"],
        ["a", HIDDEN, HIDDEN],
    ),
    "map": ({"additionalProperties": obj(blob=BLOB)}, {"k": {"blob": "LEAK"}}, {"k": {"blob": HIDDEN}}),
    "pattern": ({"patternProperties": {"^x_": BLOB}}, {"x_1": "LEAK", "y": "seen"}, {"x_1": HIDDEN, "y": "seen"}),
    "pattern that cannot be tested": ({"patternProperties": {"(?=x)": BLOB}}, {"x": "LEAK"}, {"x": HIDDEN}),
    "unevaluated": (
        {"properties": {"a": TEXT}, "unevaluatedProperties": BLOB},
        {"a": "seen", "b": "LEAK"},
        {"a": "seen", "b": HIDDEN},
    ),
    "allOf": ({"allOf": [obj(a=TEXT), obj(blob=BLOB)]}, {"a": "seen", "blob": "LEAK"}, {"a": "seen", "blob": HIDDEN}),
    "reference": ({"$ref": "#/$defs/A", "$defs": {"A": obj(blob=BLOB)}}, {"blob": "LEAK"}, {"blob": HIDDEN}),
    "mark beside a reference": (
        {"properties": {"a": {"$ref": "#/$defs/A", "artifact": True}}, "$defs": {"A": TEXT}},
        *A,
    ),
    "mark on what is referred to": ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": BLOB}}, *A),
    "escaped pointer": ({"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": BLOB}}, *A),
    "anchor": ({"properties": {"a": {"$ref": "#blob"}}, "$defs": {"B": {"$anchor": "blob", **BLOB}}}, *A),
    "reference to another document": ({"properties": {"a": {"$ref": "other.json"}}}, *A),
    "broken reference": ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, *A),
    "optional": (obj(a={"anyOf": [BLOB, {"type": "null"}]}), *A),
    "first member": (
        obj(u={"anyOf": [obj(blob=BLOB), obj(kind=TEXT)]}),
        {"u": {"blob": "LEAK"}},
        {"u": {"blob": HIDDEN}},
    ),
    "second member": (
        obj(u={"oneOf": [obj(kind=TEXT), obj(blob=BLOB)]}),
        {"u": {"blob": "LEAK"}},
        {"u": {"blob": HIDDEN}},
    ),
    "both members fit": ({"anyOf": [{"properties": {"a": TEXT}}, {"properties": {"a": BLOB}}]}, *A),
    "no member fits": ({"anyOf": [obj(a=BLOB, b=TEXT), obj(a=TEXT, c=TEXT)]}, *A),
    "the fitting member does not know the field": (
        {"anyOf": [obj(x=TEXT), obj(y=TEXT, a=BLOB)]},
        {"x": "x", "a": "LEAK"},
        {"x": "x", "a": HIDDEN},
    ),
    "condition": (
        {"if": {"properties": {"kind": {"const": "b"}}}, "then": obj(a=BLOB), "else": obj(a=TEXT)},
        {"kind": "b", "a": "LEAK"},
        {"kind": "b", "a": HIDDEN},
    ),
    "dependent": ({"dependentSchemas": {"kind": obj(a=BLOB)}}, {"kind": 1, "a": "LEAK"}, {"kind": 1, "a": HIDDEN}),
    "a member that was redacted before": (
        {"anyOf": [obj(data={"type": "object"}, a=BLOB), obj(data=TEXT, a=TEXT)]},
        {"data": "<artifact:dict size=2B>", "a": "LEAK"},
        {"data": "<artifact:dict size=2B>", "a": HIDDEN},
    ),
    "streamed to people": (obj(a={"type": "string", "stream": True}), *A),
    "the whole result": (BLOB, "LEAK", HIDDEN),
}


@pytest.mark.parametrize(("schema", "value", "shown"), HIDING.values(), ids=HIDING)
def test_a_marked_value_is_hidden_and_collected_wherever_it_stands(schema: Any, value: Any, shown: Any) -> None:
    """The same walk does both."""
    assert redact(value, schema) == shown
    assert "LEAK" in collect(value, schema).values()


SHOWING = {
    "no schema": (None, {"a": "seen"}),
    "any value": (True, {"a": "seen"}),
    "no annotations": (obj(a=TEXT), {"a": "seen"}),
    "a property called artifact": (obj(artifact=TEXT, stream=TEXT), {"artifact": "seen", "stream": "seen"}),
    "false is no mark": (obj(a={"artifact": False}), {"a": "seen"}),
    "nothing to hide": (obj(a={"anyOf": [BLOB, {"type": "null"}]}), {"a": None}),
    "absent": (obj(a=TEXT, blob=BLOB), {"a": "seen"}),
    "another member by its constant": (
        {"anyOf": [obj(kind={"const": "a"}, data=BLOB), obj(kind={"const": "b"}, data=TEXT)]},
        {"kind": "b", "data": "seen"},
    ),
    "another member by its enumeration": (
        {"anyOf": [obj(kind={"enum": ["a"]}, data=BLOB), obj(kind={"enum": ["b", "c"]}, data=TEXT)]},
        {"kind": "c", "data": "seen"},
    ),
    "another member by its type": (obj(a={"anyOf": [{"type": "array", "artifact": True}, TEXT]}), {"a": "seen"}),
    "another member by what it forbids": (
        {"anyOf": [{**obj(a=BLOB), "additionalProperties": False}, obj(a=TEXT, b=TEXT)]},
        {"a": "seen", "b": "seen"},
    ),
    "another member deep inside": (
        {"anyOf": [obj(in_=obj(kind={"const": 1}), a=BLOB), obj(in_=obj(kind={"const": 2}), a=TEXT)]},
        {"in_": {"kind": 2}, "a": "seen"},
    ),
    "condition": ({"if": {"properties": {"kind": {"const": "b"}}}, "then": obj(a=BLOB)}, {"kind": "c", "a": "seen"}),
    "garbage": (
        {"properties": 3, "anyOf": "x", "required": [1], "type": 4, "items": "no", "allOf": [None]},
        {"a": ["seen"]},
    ),
}


@pytest.mark.parametrize(("schema", "value"), SHOWING.values(), ids=SHOWING)
def test_what_no_mark_reaches_is_shown_as_it_is(schema: Any, value: Any) -> None:
    """It is not even copied."""
    assert redact(value, schema) is value
    assert not [found for found in collect(value, schema).values() if found is not None]


def test_a_null_is_shown_to_the_model_and_collected_for_people() -> None:
    """The model must know that there is no chart."""
    schema = obj(chart={"anyOf": [{"type": "object"}, {"type": "null"}], "artifact": True})
    assert redact({"chart": None}, schema) == {"chart": None}
    assert collect({"chart": None}, schema) == {"chart": None}


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


def test_a_recursive_schema_hides_at_every_level() -> None:
    """However often it refers to itself."""
    assert redact(chain(3), NODE)["next"]["next"]["next"] == {"name": "last", "blob": HIDDEN, "next": None}
    assert collect(chain(3), NODE) == {"next.next.next.blob": "LEAK"}


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


def test_redacting_twice_changes_nothing() -> None:
    """The planner redacts again what tool_runner has redacted."""
    schema = obj(
        blob={"type": "object", "artifact": True},
        u={"anyOf": [obj(kind=TEXT), obj(a={"type": "array", "artifact": True})]},
    )
    once = redact({"blob": {"k": 1}, "u": {"a": [1]}}, schema)
    assert once == {"blob": "<artifact:dict size=7B>", "u": {"a": "<artifact:list size=1 items>"}}
    assert redact(once, schema) is once
    assert collect(once, schema) == {}


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


def test_streams_are_named_by_declaration_then_by_field_then_in_order() -> None:
    """An id is used once; a call that streamed nothing shows sizes."""
    stream = {"type": "object", "artifact": True, "stream": True}
    schema = obj(a={**stream, "stream_id": "chart"}, b=stream, c=stream, d={"type": "object", "artifact": True})
    value = {key: {"x": 1} for key in "abcd"}
    size = "<artifact:dict size=7B>"
    emitted = ["first", "chart", "c"]
    expected = ["<artifact:dict stream=chart>", "<artifact:dict stream=first>", "<artifact:dict stream=c>", size]
    assert list(redact(value, schema, streamed=emitted).values()) == expected
    assert list(redact(value, schema, streamed=[]).values()) == [size] * 4
    assert list(redact(value, schema).values()) == ["<artifact:dict stream=chart>", size, size, size]
