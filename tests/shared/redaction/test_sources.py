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
