"""Sources: objects whose model says that it produces them."""

from typing import Any

import pytest

from contracts.runs.payload import Source
from services.shared.redaction.sources import TEXT_CHARACTERS, extract_sources, unique_sources

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


@pytest.mark.parametrize(("schema", "value"), PLACES.values(), ids=PLACES)
def test_a_source_is_found_wherever_it_stands(schema: Any, value: Any) -> None:
    """Equal ones count once."""
    assert extract_sources(value, schema) == [EXPECTED]


@pytest.mark.parametrize(
    "value", [{}, {"title": ""}, {"title": " "}, {"title": None}, {"title": 5}, {"url": "u"}, [], "T", None]
)
def test_without_a_title_there_is_no_source(value: Any) -> None:
    """The title is what makes it one."""
    assert extract_sources(value, HIT) == []


def test_without_the_mark_there_is_no_source() -> None:
    """Equal names alone mean nothing."""
    assert extract_sources(ONE, HIT | {"produces_sources": False}) == []
    assert extract_sources(ONE, None) == []


def test_a_wrong_field_is_left_out_and_the_rest_stays() -> None:
    """A bad score does not cost the source."""
    for score in ("high", True, float("nan"), [1]):
        assert extract_sources({"title": "T", "url": 7, "score": score}, HIT) == [Source(title="T")]


def test_a_renamed_field_counts_before_one_of_the_same_name() -> None:
    """And a field that was given away fills nothing else."""
    schema = {
        "properties": {
            "title": {"type": "integer"},
            "headline": {"source_field": "title"},
            "url": {"source_field": "snippet"},
        },
        "produces_sources": True,
    }
    assert extract_sources({"title": 17, "headline": "H", "url": "u"}, schema) == [Source(title="H", snippet="u")]


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


def test_a_hidden_field_gives_no_text() -> None:
    """A placeholder is not a link."""
    assert extract_sources({"title": "T", "url": "<artifact:str size=9B>"}, HIT) == [Source(title="T")]


def test_the_first_of_equal_sources_stays() -> None:
    """The score is no part of what they are."""
    first, second = Source(title="T", url="u", relevance_score=0.1), Source(title="T", url="u", relevance_score=0.9)
    other = Source(title="T", url="u", snippet="s")
    assert unique_sources([first, second, other]) == [first, other]


def test_sources_stay_light_enough_for_a_message() -> None:
    """Texts are cut, and the list ends before it is too heavy."""
    found = extract_sources([{"title": f"{number} " + "x" * 10_000} for number in range(1_000)], {"items": HIT})
    assert 20 < len(found) < 40
    assert all(len(source.title) == TEXT_CHARACTERS + 1 for source in found)
