"""From a record to frames, and ids: pure."""

import pytest
import structlog

from contracts.runs.events import Asked, Called, Chunk, PlannedCall, RunStarted, Step
from contracts.runs.requests import RunLimits, RunRequested
from contracts.runs.step_events import Opaque
from contracts.wire.records import Record
from runwire.client.event_stream import SseDecoder
from services.gateway.protocols.events.stream import Cursor, frames


def record(*events: object) -> bytes:
    return Record(events=list(events)).model_dump_json().encode()


CHUNK = Chunk(seq=0, text="a\nb\r\nc\u2028\x00\u202e", action_seq=1, attempt=1)


def test_each_event_has_a_frame_and_the_last_one_the_id() -> None:
    """A client that comes back gets a record whole or not at all."""
    asked = Asked(turn=1, attempt=1, by="REQUESTS:1", holder="h")
    found = SseDecoder().feed(frames(record(asked, CHUNK), 5, 9))
    assert [(event.type, event.id) for event in found] == [("asked", None), ("chunk", "5-9")]
    assert Chunk.model_validate_json(found[1].data) == CHUNK
    assert Cursor.parse("5-9") == Cursor(log=5, stream=9)


def test_a_token_is_one_short_frame() -> None:
    """What is stored is what is sent."""
    body = frames(b'{"v":1,"id":"0","at":1,"events":[{"type":"chunk","text":"hi"}]}', 1, 2)
    assert body == b'event: chunk\ndata: {"type":"chunk","text":"hi"}\nid: 1-2\n\n'


def test_tool_context_is_not_shown() -> None:
    """`tool_context` may hold credentials of the caller."""
    request = RunRequested(
        run_id="0" * 32, tenant="t", requested_at=1, trace_id="0" * 32, query="q", tool_context={"token": "s3cr3t"}
    )
    started = RunStarted(run_id="0" * 32, tenant="t", request=request, limits=RunLimits())
    body = frames(record(started, CHUNK), 1, 0)
    assert b"s3cr3t" not in body
    assert b'"tool_context"' not in body
    assert b'"query":"q"' in body


def test_what_is_for_the_model_is_not_shown() -> None:
    """They are for the model that sent them."""
    opaque = Opaque(model="m", message={"signature": "s3cr3t"})
    step = Step(step=1, node="look", status="started", opaque=opaque, said="s3cr3t")
    body = frames(record(step, CHUNK), 1, 0)
    assert b"s3cr3t" not in body
    assert b'"node":"look"' in body


def test_an_event_of_a_newer_version_is_passed_on() -> None:
    """Listeners may know it."""
    body = frames(b'{"v":1,"events":[{"type":"sung","notes":[1.50,12345678901234567890]}]}', 1, 2)
    assert body.startswith(b"event: sung\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no json",
        b"[]",
        b"null",
        b"{}",
        b'{"events":{}}',
        b'{"events":[]}',
        b'{"events":"chunk"}',
        b'{"events":[1]}',
        b'{"events":[{}]}',
        b'{"events":[{"type":1}]}',
        b'{"events":[{"type":"a\\nid: 9"}]}',
        b'{"events":[{"type":"run_started"}]}',
        b'{"events":[{"type":"run_started","request":1}]}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_record_is_skipped_with_a_warning(data: bytes) -> None:
    """One bad record does not end a stream, and nothing of it reaches the client."""
    with structlog.testing.capture_logs() as logs:
        assert frames(data, 1, 2) == b""
    assert [entry["event"] for entry in logs] == (
        ["record_skipped"] if data not in {b'{"events":[]}', b'{"events":{}}'} else []
    )


def test_a_large_integer_keeps_all_its_digits() -> None:
    """A person decides about the arguments that are shown."""
    called = PlannedCall(call_id="1-1", tool="pay", args={"sum": 10**22 + 1})
    (event,) = SseDecoder().feed(frames(record(Called(step=1, by="REQUESTS:1", calls=[called])), 5, 9))
    assert Called.model_validate_json(event.data).calls == [called]


def test_a_deep_event_is_still_an_event() -> None:
    """Deeper than the fast writer can write."""
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    assert deep in frames(b'{"events":[{"type":"observed","observation":' + deep + b"}]}", 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "1", "1-", "-1", "1-2-3", "01-2", "1-02", " 1-2", "1-2\n", "a-b", "1.0-2", "+1-2", "٣-٤"),
        "9" * 20 + "-0",
    ],
)
def test_only_ids_of_frames_are_cursors(text: str) -> None:
    """Nothing else."""
    with pytest.raises(ValueError, match="no cursor"):
        Cursor.parse(text)
