"""What the model sees of a tool's result: in doubt a field is hidden. Its sources, and its artifacts by path."""

from typing import Any

import pytest

from contracts.runs.payload import Source
from services.shared.redaction.annotations import MAX_DEPTH
from services.shared.redaction.separation import TEXT_CHARACTERS, dotted, extract_sources, restore, separate
from services.shared.redaction.stored_values import as_reference

HIDDEN = "<artifact:str size=4B>"
BLOB = {"type": "string", "artifact": True}
TEXT = {"type": "string"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object schema whose properties are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


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


HIT = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "url": {"type": "string"},
        "score": {"type": "number", "source_field": "relevance_score"},
    },
    "required": ["title"],
    "produces_sources": True,
}


def test_a_field_without_a_value_takes_nobodys_place() -> None:
    """Optional fields that a search left empty."""
    schema = {
        "properties": {
            "title": {},
            "headline": {"source_field": "title"},
            "link": {"source_field": "url"},
            "page": {"source_field": "url"},
        },
        "produces_sources": True,
    }
    assert extract_sources({"title": "T", "headline": None, "link": None, "page": "p"}, schema) == [
        Source(title="T", url="p")
    ]


def test_sources_stay_light_enough_for_a_message() -> None:
    """Texts are cut, and the list ends before it is too heavy."""
    found = extract_sources([{"title": f"{number} " + "x" * 10_000} for number in range(1_000)], {"items": HIT})
    assert 20 < len(found) < 40
    assert all(len(source.title) == TEXT_CHARACTERS + 1 for source in found)


REF = {
    "artifact_id": "0" * 32,
    "mime_type": "application/json",
    "size": 43_000,
    "sha256": "a" * 64,
    "json_type": "dict",
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("chart",), "chart"),
        (("items", 0, "blob"), "items[0].blob"),
        ((0, 1), "[0][1]"),
        (("files", "report.pdf", "blob"), 'files["report.pdf"].blob'),
        (("a.b",), '["a.b"]'),
        (("a b",), "a b"),
        (("",), '[""]'),
        (("$",), '["$"]'),
        (("it[0]", "x"), '["it[0]"].x'),
        ((), "$"),
    ],
)
def test_a_path_has_one_name(path: tuple[str | int, ...], name: str) -> None:
    """Quoted where it would be ambiguous; no two paths share a name."""
    assert dotted(path) == name


def test_artifacts_return_to_their_places_by_value_or_by_reference() -> None:
    """A placeholder that nobody knows stays."""
    observation = {
        "n": 1,
        "chart": "<artifact:dict size=42KB>",
        "rows": [{"b": "<artifact:str size=3B>"}],
        "gone": "<artifact:int>",
    }
    restored = restore(observation, {"chart": REF, "rows[0].b": "abc"})
    assert restored == {"n": 1, "chart": REF, "rows": [{"b": "abc"}], "gone": "<artifact:int>"}
    ref = as_reference(REF)
    assert ref is not None
    assert restore("<artifact:dict size=42KB>", {"$": ref}) == REF


@pytest.mark.parametrize(
    "change", [{"artifact_id": "x"}, {"sha256": "A" * 64}, {"size": -1}, {"size": "many"}, {"json_type": "tree"}]
)
def test_what_does_not_have_the_shape_is_no_reference(change: dict[str, Any]) -> None:
    """Every field is checked, and none may be missing but those that say more."""
    assert as_reference(REF) is not None
    assert as_reference(REF | change) is None
    assert (as_reference({key: REF[key] for key in REF.keys() - change}) is None) == ("json_type" not in change)
