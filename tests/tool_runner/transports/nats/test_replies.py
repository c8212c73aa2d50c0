"""What a reply of a tool means, whatever its form."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from contracts.tools.messages import PARTS_HEADER, REPLY_HEADER, ToolFailure
from contracts.wire.limits import MAX_INLINE_BYTES
from services.shared.redaction.json_values import CUT_MARK
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event
from services.tool_runner.errors import ToolReported
from services.tool_runner.transports.base import EventQueue
from services.tool_runner.transports.nats.replies import event_of, read_failure


@pytest.mark.parametrize(
    ("headers", "data", "event"),
    [
        ({}, b"1", events.Result(7, b"1")),
        ({REPLY_HEADER: "result"}, b"1", events.Result(7, b"1")),
        ({REPLY_HEADER: "result", PARTS_HEADER: " 2 "}, b"", events.Result(7, b"", 2)),
        ({REPLY_HEADER: "result", PARTS_HEADER: "two"}, b"", events.Result(7, b"", -1)),
        ({REPLY_HEADER: "result", PARTS_HEADER: "9" * 5000}, b"", events.Result(7, b"", -1)),
        ({REPLY_HEADER: "part"}, b"12", events.Part(7, b"12")),
        ({REPLY_HEADER: "heartbeat"}, b"", events.Heartbeat()),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5}', events.Heartbeat(0.5)),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5, "instance": "n1"}', events.Heartbeat(0.5, "n1")),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": -1}', events.Heartbeat()),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5, "instance": "n1.>"}', events.Heartbeat()),
        ({REPLY_HEADER: "declined"}, b"", events.Declined(7, is_busy=True)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "busy"}', events.Declined(7, is_busy=True)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "late"}', events.Declined(7, is_busy=False)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "of the future"}', events.Declined(7, is_busy=False)),
        ({REPLY_HEADER: "of the future"}, b"{}", events.Heartbeat()),
        ({REPLY_HEADER: "progress"}, b"{}", events.Progress(b"{}")),
        ({REPLY_HEADER: "artifact_chunk"}, b"{}", events.Piece(b"{}")),
        ({REPLY_HEADER: "content"}, "Grüße".encode(), events.Content("Grüße")),
        ({REPLY_HEADER: "content"}, b"", events.Content("")),
        ({REPLY_HEADER: "content"}, b"\xff", events.Content("\ufffd")),
        ({REPLY_HEADER: "content"}, b"x" * MAX_INLINE_BYTES, events.Content("x" * MAX_INLINE_BYTES)),
        ({"Status": "503"}, b"", events.NoResponders(7)),
        ({"Nats-Service-Error": "no paper"}, b"", events.Failure(ToolFailure(reason="no paper"))),
    ],
)
def test_a_message_is_one_event(headers: dict[str, str], data: bytes, event: Event) -> None:
    """An unknown kind is a sign of life of a newer tool."""
    assert event_of(cast("Msg", SimpleNamespace(headers=headers or None, data=data)), 7) == event


@pytest.mark.parametrize("character", ["x", "ü", "😀"])
def test_a_longer_content_is_cut_between_two_characters(character: str) -> None:
    """And bears a mark, within the limit."""
    data = character.encode() * (MAX_INLINE_BYTES + 1)
    event = event_of(cast("Msg", SimpleNamespace(headers={REPLY_HEADER: "content"}, data=data)), 7)
    assert isinstance(event, events.Content)
    assert event.is_cut
    assert MAX_INLINE_BYTES - 4 <= len(event.text.encode()) <= MAX_INLINE_BYTES
    assert set(event.text.removesuffix(CUT_MARK)) == {character}


@pytest.mark.parametrize(
    ("data", "reason", "code"),
    [
        (b'{"reason": "no paper", "code": "tool_refused"}', "no paper", "tool_refused"),
        (b'{"reason": "no paper", "code": "E42"}', "no paper", "tool_error"),
        (b'"no paper"', "no paper", "tool_error"),
        (b"no paper", "no paper", "tool_error"),
        (b"", "the tool failed and did not say why", "tool_error"),
        (b"\xff", "\ufffd", "tool_error"),
    ],
)
def test_a_failure_may_have_any_form(data: bytes, reason: str, code: str) -> None:
    """The model reads the reason; an unknown code of the tool is replaced by ours."""
    fault = ToolReported(read_failure(data)).fault()
    assert (fault.reason, fault.code) == (reason, code)


async def test_events_are_queued_in_order_up_to_a_limit() -> None:
    """Beyond it they are replaced by one that says so; events without data always fit."""
    queue = EventQueue(max_bytes=10)
    parts: list[Any] = [events.Part(1, b"12345"), events.Part(1, b"12345")]
    for part in parts:
        queue.put(part, 5)
    assert [await queue.next(1), await queue.next(1)] == parts
    assert await queue.next(0) is None
    for part in [*parts, *parts]:
        queue.put(part, 5)
    queue.put(events.RunEnded())
    assert await queue.next(1) == events.Flood()
