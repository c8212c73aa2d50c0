"""The bounds of a provider's bytes, without a provider."""

import gzip
import zlib
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.models.byte_limits import Bounded, ErrorBody, Limits, TooMuch, shortened

LIMITS = Limits(reply=200_000, line=100_000, error=64 << 10)


def read(parts: list[bytes], encoding: str = "identity", kind: str = "text/event-stream") -> bytes:
    """All that may be read."""
    bounded = Bounded("m", LIMITS, encoding, kind)
    return b"".join([*(piece for part in parts for piece in bounded.feed(part)), bounded.end()])


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes in pieces."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(
    st.lists(st.sampled_from([b"data: {}", b"event: x", b'{"a": 1}', "data: é".encode()])),
    st.lists(st.integers(0)),
    st.booleans(),
)
def test_events_come_through_unchanged_however_they_are_cut(
    lines: list[bytes],
    cuts: list[int],
    packed: bool,  # noqa: FBT001
) -> None:
    """Line by line or byte by byte, packed or not, with either line end."""
    for end in (b"\n\n", b"\n", b"\r\n", b"\r\n\r\n"):
        data = b"".join(line + end for line in lines)
        sent = gzip.compress(data) if packed else data
        assert read(parts_of(sent, cuts), "gzip" if packed else "identity") == data


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_nothing_is_unpacked_beyond_the_limit(encoding: str, pack: object) -> None:
    """A hundred megabytes in a hundred kilobytes end at the limit, whatever they hold."""
    data = pack(b"data: {}\n\n" * 10_000_000)  # type: ignore[operator]
    assert len(data) < LIMITS.reply
    pieces: list[bytes] = []
    with pytest.raises(TooMuch, match="more than 200,000 bytes"):
        pieces.extend(Bounded("m", LIMITS, encoding, "").feed(data))
    assert sum(map(len, pieces)) <= LIMITS.reply


def test_comments_and_empty_lines_are_left_out() -> None:
    """A library would do work for each of them."""
    assert read([b": x\n\n" * 1000, b"data: 1\n\n", b"\n" * 2000, b"data: 2\n\n"]) == b"data: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize("parts", [[b"\n" * 10_000], [b"a"] * 4000], ids=["lines", "pieces"])
def test_what_is_short_counts_too(parts: list[bytes]) -> None:
    """Each line and each piece costs time, were it a single byte."""
    with pytest.raises(TooMuch, match="more than 200,000 bytes"):
        read(parts)


def test_a_long_sound_event_stays_as_it_is() -> None:
    """Some servers send a whole reply at once."""
    line = b"data: " + orjson.dumps({"choices": [{"delta": {"content": "x" * 90_000}}]}) + b"\n\n"
    assert read([line]) == line


@pytest.mark.parametrize(
    "line",
    [
        b"data: " + orjson.dumps({"error": {"message": "x" * 90_000, "code": "overloaded"}}),
        b"data: " + orjson.dumps({"choices": [{"index": n} for n in range(2000)]}),
        b"data: " + orjson.dumps({"choices": [], "model": "x" * 90_000}),
        b"data: " + b"[" * 90_000,
        b"x" * 90_000,
    ],
)
def test_a_long_line_that_becomes_an_error_is_cut(line: bytes) -> None:
    """It is cut as the body of an error is."""
    assert len(read([line + b"\n\n"])) < 5000


def test_a_line_and_an_encoding_have_limits() -> None:
    """The exact byte counts; what cannot be unpacked is not taken."""
    assert len(read([b"x" * 50_000, b"x" * 50_000])) < 5000
    with pytest.raises(TooMuch, match="a line of more than 100,000 bytes"):
        read([b"x" * 50_000, b"x" * 50_001])
    for encoding in ("br", "zstd", "gzip, gzip"):
        with pytest.raises(TooMuch, match="packs its replies"):
            read([], encoding)
    with pytest.raises(TooMuch, match="cannot be unpacked"):
        read([b"no gzip"], "gzip")


def test_binary_frames_have_no_lines() -> None:
    """Those of Bedrock: what is no line is not changed."""
    data = b"\x00\x01:\n\n\n\n" * 2000
    assert read([data], kind="application/vnd.amazon.eventstream") == data


def test_an_error_keeps_what_tells_its_kind() -> None:
    """Its message begins as it began; its code and type stay."""
    error = {
        "error": {"message": "too long" + "x" * 50_000, "type": "invalid", "code": "context_length_exceeded"},
        "echo": [["y" * 900]] * 99,
    }
    short = orjson.loads(shortened(orjson.dumps(error)))
    assert short["error"]["code"] == "context_length_exceeded"
    assert short["error"]["message"].startswith("too long")
    assert len(orjson.dumps(short)) <= 4096
    assert shortened(b"<html>" * 2000) == (b"<html>" * 2000)[:4096]


def test_an_error_is_not_read_further_than_its_limit() -> None:
    """A body that cannot be unpacked is not read either."""
    body = ErrorBody("m", LIMITS.error, "identity")
    assert [body.take(b"x" * 40_000), body.take(b"x" * 40_000)] == [True, False]
    for encoding, data in (("br", b"x"), ("gzip", b"no gzip"), ("gzip", gzip.compress(b"x" * 10_000_000))):
        body = ErrorBody("m", LIMITS.error, encoding)
        assert not body.take(data)
        assert len(body.short()) <= 4096
