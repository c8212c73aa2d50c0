"""The decoder of event streams against the standard, however the bytes are cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwire.client.event_stream import EventTooLarge, ServerSentEvent, SseDecoder

TEXTS = st.text(st.one_of(st.sampled_from("\r\n: \0aé\ufeff\u2028"), st.characters(exclude_categories=["Cs"])))
LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "",
            "data",
            "data:",
            "data: ",
            "data:  x",
            "id",
            "id: 7",
            "id:a\0b",
            "event: e",
            "event",
            ": note",
            ":",
            "retry: 5",
            "odd: 1",
        ]
    ),
    st.builds(lambda name, text: f"{name}: {text}", st.sampled_from(["data", "event", "id", "retry", ""]), TEXTS),
)
STREAMS = st.builds(
    lambda begin, lines: begin + "".join(line + end for line, end in lines),
    st.sampled_from(["", "\ufeff"]),
    st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n"])), max_size=20),
)


def by_the_book(text: str) -> tuple[list[ServerSentEvent], str]:
    """The standard's algorithm, word for word, over the whole text at once."""
    events, kind, data, own, last = [], "", "", None, ""
    lines = re.split("\r\n|\n|\r", text.removeprefix("\ufeff"))
    for line in lines[:-1]:
        if line == "":
            if data:
                events.append(ServerSentEvent(kind or "message", data.removesuffix("\n"), own, last))
            kind, data, own = "", "", None
            continue
        name, colon, value = line.partition(":")
        if colon and not name:
            continue
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data += value + "\n"
        elif name == "id" and "\0" not in value:
            own = last = value
    return events, last


def decoded(pieces: list[bytes]) -> tuple[list[ServerSentEvent], str]:
    """All events of a response that comes in these pieces."""
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)], decoder.last_id


@given(STREAMS, st.data())
def test_it_follows_the_standard_wherever_the_bytes_are_split(text: str, data: st.DataObject) -> None:
    """Also between CR and LF, within a character, and within the byte order mark."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=30)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(pieces) == by_the_book(text)
    assert decoded([raw[n : n + 1] for n in range(len(raw))]) == by_the_book(text)


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_no_bytes_break_it(pieces: list[bytes]) -> None:
    """Invalid UTF-8 becomes replacement characters; the splits still do not matter."""
    assert decoded(pieces) == decoded([b"".join(pieces)])


def test_an_endless_event_is_refused() -> None:
    """Many short ones are not."""
    decoder = SseDecoder(limit=1000)
    for _ in range(100):
        decoder.feed(b": keep-alive\n\ndata: " + b"x" * 500 + b"\n\n")
    decoder.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLarge):
        decoder.feed(b"y" * 100)
