"""Sources: objects whose model says that it produces them."""

from contracts.runs.payload import Source
from services.shared.redaction.separation import TEXT_CHARACTERS, extract_sources

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
ONE = {"title": "T", "url": "u", "score": 0.5}
EXPECTED = Source(title="T", url="u", relevance_score=0.5)

PLACES = {
    "itself": (HIT, ONE),
    "field": ({"properties": {"hit": HIT}}, {"hit": ONE}),
    "list": ({"properties": {"hits": {"items": HIT}}}, {"hits": [ONE, ONE]}),
    "map": ({"additionalProperties": HIT}, {"a": ONE}),
    "optional": ({"properties": {"hit": {"anyOf": [{"type": "null"}, HIT]}}}, {"hit": ONE}),
    "second member": ({"anyOf": [{"type": "object", "required": ["other"]}, HIT]}, ONE),
    "reference": ({"items": {"$ref": "#/$defs/Hit"}, "$defs": {"Hit": HIT}}, [ONE]),
    "mark beside a reference": (
        {"$ref": "#/$defs/H", "produces_sources": True, "$defs": {"H": HIT | {"produces_sources": False}}},
        ONE,
    ),
    "deep": ({"properties": {"a": {"items": {"additionalProperties": {"items": HIT}}}}}, {"a": [{"b": [ONE]}]}),
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
