"""The bounds of a provider's bytes, without a provider."""

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.models.limits import TooMuch, Unpacker, WholeLines

LIMIT_BYTES = 200_000


def read(parts: list[bytes], encoding: str = "identity") -> bytes:
    """All that may be read, put together from whole lines."""
    unpacker, lines = Unpacker("m", LIMIT_BYTES, encoding), WholeLines("m", LIMIT_BYTES // 2)
    whole = [line for part in parts for piece in unpacker.feed(part) for line in lines.feed(piece)]
    return b"".join([*whole, lines.rest()])


@given(
    st.lists(st.sampled_from([b"data: {}", b"event: x", b'{"a": 1}', "data: é".encode()])),
    st.lists(st.integers(0)),
    st.sampled_from([b"\n\n", b"\n", b"\r\n", b"\r\n\r\n", b"\r\r\r", b"\n: filler\n \n\n"]),
    st.booleans(),
)
def test_events_come_through_however_they_are_cut(
    lines: list[bytes],
    cuts: list[int],
    end: bytes,
    packed: bool,  # noqa: FBT001
) -> None:
    """Line by line or byte by byte, packed or not, with any line end. Of what says nothing, one empty line is left."""
    data = b"".join(line + end for line in lines)
    sent = gzip.compress(data) if packed else data
    places = sorted({0, len(sent), *(cut % (len(sent) + 1) for cut in cuts)})
    parts = [sent[start:stop] for start, stop in pairwise(places)]
    expected = b"\n\n" if len(end.splitlines()) > 1 else b"\n"
    assert read(parts, "gzip" if packed else "identity") == b"".join(line + expected for line in lines)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_nothing_is_unpacked_beyond_the_limit(encoding: str, pack: object) -> None:
    """A hundred megabytes in a hundred kilobytes end at the limit, whatever they hold."""
    data = pack(b"data: {}\n\n" * 10_000_000)  # type: ignore[operator]
    assert len(data) < LIMIT_BYTES
    pieces: list[bytes] = []
    with pytest.raises(TooMuch, match="more than 200,000 bytes"):
        pieces.extend(Unpacker("m", LIMIT_BYTES, encoding).feed(data))
    assert sum(map(len, pieces)) <= LIMIT_BYTES


def test_pieces_lines_and_encodings_have_limits() -> None:
    """Each piece costs time, were it a single byte; what cannot be unpacked is not taken."""
    with pytest.raises(TooMuch, match="more than 200,000 bytes"):
        read([b"a"] * 4000)
    assert len(read([b"x" * 50_000, b"x" * 50_000])) == 100_000
    with pytest.raises(TooMuch, match="a line of more than 100,000 bytes"):
        read([b"x" * 50_000, b"x" * 50_001])
    for encoding in ("br", "zstd", "gzip, gzip"):
        with pytest.raises(TooMuch, match="packs its replies"):
            read([], encoding)
    with pytest.raises(TooMuch, match="cannot be unpacked"):
        read([b"no gzip"], "gzip")
