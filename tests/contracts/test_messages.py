"""Messages travel between versions: what a newer peer adds is ignored, what we do not know is passed on."""

import json

import pytest
from pydantic import ValidationError

from contracts.runs import events
from contracts.runs.pages import Page
from contracts.wire.records import Record


def test_a_record_keeps_events_of_a_newer_version() -> None:
    """An unknown event type is kept with its fields, an unknown field of a known event is dropped."""
    sent = [{"type": "teleported", "to": "b"}, {"type": "cancelled", "payload": {"raw_answer": ""}, "new": 1}]
    record = Record.model_validate_json(json.dumps({"v": 1, "id": "x", "at": 1, "new": 1, "events": sent}))
    unknown, known = record.events
    assert isinstance(unknown, events.UnknownEvent)
    assert unknown.model_dump() == {"type": "teleported", "to": "b"}
    assert isinstance(known, events.Cancelled)
    assert record.types() == "teleported,cancelled"


def test_a_page_has_so_many_bytes() -> None:
    """Not characters."""
    Page(name="a", filters={"q": "x" * 40_000})
    with pytest.raises(ValidationError, match="bytes as JSON"):
        Page(name="a", filters={"q": "é" * 40_000})


@pytest.mark.parametrize(
    "body",
    [
        '{"v": 2, "id": "x", "at": 1, "events": [{"type": "z"}]}',
        '{"id": "x", "at": 1, "events": []}',
        "[]",
        "{",
        '"x"',
        "null",
    ],
)
def test_a_record_of_another_version_or_shape_is_refused(body: str) -> None:
    """An unknown version, no events, or something else altogether is an error."""
    with pytest.raises(ValidationError):
        Record.model_validate_json(body)


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ('{"type": "step"}', ("known", "step", "step")),
        ('{"type": "step", "step": "x", "node": "n", "status": "started"}', ("known", "step", "step")),
        ('{"type": "chunk", "phase": "verse"}', ("known", "chunk", "seq")),
        ('{"step": 1}', ("known",)),
        ('{"type": 5}', ("known",)),
        ("5", ("known",)),
    ],
)
def test_a_known_event_that_is_wrong_is_no_unknown_one(event: str, place: tuple[str, ...]) -> None:
    """It is refused, and the complaint names the field."""
    with pytest.raises(ValidationError) as refusal:
        Record.model_validate_json(f'{{"v": 1, "events": [{event}]}}')
    assert refusal.value.errors()[0]["loc"] == ("events", 0, *place)
