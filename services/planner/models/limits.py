"""Limits of a model's reply: its bytes and its time. No I/O.

Rule 1: bytes are counted as received and as decompressed. Nothing is decompressed beyond the limit.
Rule 2: a line is passed on whole, and no line is longer than its limit.
Rule 3: even a very short piece costs time, so each counts as a minimum number of bytes.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from services.planner.models.errors import ModelFailed
from services.planner.models.types import ModelRequest

T = TypeVar("T")
IDENTITY = "identity"
MAX_REST_BYTES = 1024
"""Bytes that are ignored behind the end of a reply. If a server sends more, the connection is closed."""
REST_TIMEOUT_S = 0.2
"""Wait for the rest of a reply that has ended: only a connection whose reply was read to its end can be used again."""
BYTES_PER_PIECE = 1 << 16
"""Read without a pause: some 20 ms of work where every line is short."""
MIN_PIECE_BYTES = 64
"""What a piece (such as an HTTP chunk) at least counts towards the limit of a reply."""
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Accepted bytes: of a whole reply with its framing, of one line, of an error's body."""

    reply: int = 8 << 20
    line: int = 1 << 20
    error: int = 64 << 10


class TooMuch(ModelFailed):
    """A provider sent more than the limit, or an unsupported encoding."""

    def __init__(self, reason: str, *, retryable: bool = True) -> None:
        super().__init__("model_failed", reason, retryable=retryable)


def too_long(model: str, limit: int) -> TooMuch:
    """Return the failure of a reply with too many bytes."""
    return TooMuch(f"{model} sent more than {limit:,} bytes for one reply (RUNWIRE_MODEL_REPLY_BYTES)")


class Unpacker:
    """Counts and decompresses bytes. `feed` raises TooMuch."""

    def __init__(self, model: str, limit: int, encoding: str) -> None:
        self._model = model
        self._limit = limit
        self._packed = self._unpacked = 0
        encoding = encoding.strip().lower() or IDENTITY
        if encoding not in {IDENTITY, *_PACKED}:
            raise TooMuch(f"the provider of {model} packs its replies although it was asked not to", retryable=False)
        self._inflate = None if encoding == IDENTITY else zlib.decompressobj(_PACKED[encoding])

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes, in pieces."""
        self._packed += max(len(data), MIN_PIECE_BYTES)
        self._check(self._packed)
        piece = b""
        # After a full piece the decompressor may hold more output.
        while data or len(piece) == BYTES_PER_PIECE:
            piece, data = self._next(data)
            self._unpacked += len(piece)
            self._check(self._unpacked)
            if piece:
                yield piece

    def _next(self, data: bytes) -> tuple[bytes, bytes]:
        if self._inflate is None:
            return data[:BYTES_PER_PIECE], data[BYTES_PER_PIECE:]
        if self._inflate.eof:
            return b"", b""
        try:
            return self._inflate.decompress(data, BYTES_PER_PIECE), self._inflate.unconsumed_tail
        except zlib.error:
            raise TooMuch(f"the provider of {self._model} sent what cannot be unpacked") from None

    def _check(self, count: int) -> None:
        if count > self._limit:
            raise too_long(self._model, self._limit)


class WholeLines:
    """Puts bytes together to lines, which end with LF, CR or both. `feed` raises TooMuch.

    Comments, and all but one of several empty lines, are left out: a reader would spend time on each. Here a line costs
    some 0.1 µs.
    """

    def __init__(self, model: str, limit: int) -> None:
        self._model = model
        self._limit = limit
        self._parts: list[bytes] = []
        self._length = 0
        self._is_after_return = False
        self._is_after_empty_line = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete lines, each with an LF at its end."""
        if self._is_after_return and data.startswith(b"\n"):
            data = data[1:]  # The second half of a line's end.
        self._is_after_return = data.endswith(b"\r")
        lines = data.splitlines(keepends=True)
        rest = [] if data.endswith((b"\n", b"\r")) else lines[-1:]
        if lines and len(lines) > len(rest):
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self._length = [], 0
            del lines[len(lines) - len(rest) :]
        else:
            lines.clear()
        self._parts += rest
        self._length += sum(map(len, rest))
        if max(self._length, max(map(len, lines), default=0)) > self._limit:
            raise TooMuch(f"{self._model} sent a line of more than {self._limit:,} bytes")
        told: list[bytes] = []
        for line in lines:
            if line.isspace():
                if not self._is_after_empty_line:
                    told.append(b"\n")
                self._is_after_empty_line = True
            elif line[:1] != b":":
                told.append(line if b"\r" not in line else line.rstrip(b"\r\n") + b"\n")
                self._is_after_empty_line = False
        return told

    def rest(self) -> bytes:
        """Return the incomplete line at the end."""
        return b"".join(self._parts)


class ReplyTimeouts:
    """The limits of one reply: idle time and total time."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._clock = asyncio.get_running_loop().time
        self._end = None if request.total_s is None else self._clock() + request.total_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await within both limits. Time that the consumer spends between two deltas does not count as idle."""
        idle = self._request.timeout_s
        left = idle if self._end is None else max(0.0, self._end - self._clock())
        try:
            async with asyncio.timeout(min(idle, left)) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            what = (
                f"said nothing for {idle:g} s" if left >= idle else f"did not finish within {self._request.total_s:g} s"
            )
        raise ModelFailed("model_failed", f"{self._request.model} {what}", retryable=True)
