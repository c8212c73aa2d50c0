"""Limits and filters the bytes of a provider's reply. No I/O.

Rule 1: bytes are counted as received and as decompressed. Nothing is decompressed beyond the limit.
Rule 2: a line is passed on whole, and no line is longer than its limit. Comments and repeated empty lines are left out:
they have no content, and LiteLLM would make a chunk of each.
Rule 3: even a very short piece or line costs time, so each counts as a minimum number of bytes.
Rule 4: errors are shortened. LiteLLM searches an error's text with some dozens of regular expressions, several times: 1
ms per KB each. The same holds for errors inside a stream, and for long lines that are no JSON or have very many
members, since they become errors.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from services.planner.models.errors import ModelFailed

IDENTITY = "identity"
MAX_ERROR_BYTES = 4096
"""Longest error that is passed on, and longest line that becomes one."""
MAX_REST_BYTES = 1024
"""Bytes that are ignored behind the end of a reply. If a server sends more, the connection is closed."""
BYTES_PER_PIECE = 1 << 16
MIN_PIECE_BYTES, MIN_LINE_BYTES = 64, 32
"""What a piece (such as an HTTP chunk) and a line at least count towards the limit of a reply."""
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_BINARY = "application/vnd.amazon.eventstream"
TEXT_CHARACTERS = (1000, 100, 20)
"""Characters of each text in a shortened error, tried in this order."""
_WIDTH, _DEPTH = 20, 6
MAX_MEMBERS = 500
"""Most members of a long event: LiteLLM takes 80 µs for each."""
_NAMES = ("id", "model", "object", "type", "system_fingerprint", "service_tier")
"""Metadata of an event. LiteLLM searches some of these texts with regular expressions."""
_ERROR_KEYS = frozenset({"error", "errors", "detail"})


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
    """Puts bytes together to lines, which end with LF, CR or both. `feed` raises TooMuch."""

    def __init__(self, model: str, limit: int) -> None:
        self._model = model
        self._limit = limit
        self._held: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the complete lines with their ends. Of a CRLF in two pieces, the LF is an empty line."""
        for line in data.splitlines(keepends=True):
            self._held.append(line)
            self._length += len(line)
            if self._length > self._limit:
                raise TooMuch(f"{self._model} sent a line of more than {self._limit:,} bytes")
            if line.endswith((b"\n", b"\r")):
                yield self.rest()

    def rest(self) -> bytes:
        """Return the line held so far."""
        line = b"".join(self._held)
        self._held.clear()
        self._length = 0
        return line


class Lines:
    """Passes bytes on line by line, filtered. `feed` raises TooMuch. `reply`: the limit of all lines together."""

    def __init__(self, model: str, limit: int, reply: int) -> None:
        self._model = model
        self._most = self._left = reply
        self._whole = WholeLines(model, limit)
        self._after_empty = True
        self._after_return = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the complete lines; empty bytes for one that is left out, so that the reader can pause there too."""
        for line in self._whole.feed(data):
            self._left -= max(len(line), MIN_LINE_BYTES)
            if self._left < 0:
                raise too_long(self._model, self._most)
            yield self._filtered(line)

    def end(self) -> bytes:
        """Return the line held so far, filtered."""
        return self._filtered(self._whole.rest())

    def _filtered(self, line: bytes) -> bytes:
        # "\r\n" may arrive in two parts.
        second_half, self._after_return = line == b"\n" and self._after_return, line.endswith(b"\r")
        empty = not line.strip() and not second_half
        if line.startswith(b":") or (empty and self._after_empty):
            return b""
        self._after_empty = self._after_empty if second_half else empty
        return line if len(line) <= MAX_ERROR_BYTES else _checked(line)


class Bounded:
    """All limits of a reply: decompressed, counted, split into lines unless it is binary. `feed` raises TooMuch."""

    def __init__(self, model: str, limits: Limits, encoding: str, content_type: str) -> None:
        self._unpacker = Unpacker(model, limits.reply, encoding)
        self._lines = (
            None
            if content_type.partition(";")[0].strip().lower() == _BINARY
            else Lines(model, limits.line, limits.reply)
        )

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes to pass on."""
        for piece in self._unpacker.feed(data):
            if self._lines is None:
                yield piece
            else:
                yield from self._lines.feed(piece)

    def end(self) -> bytes:
        """Return the rest at the end of the reply."""
        return b"" if self._lines is None else self._lines.end()


class ErrorBody:
    """The first bytes of an error's body. A body that cannot be decompressed is dropped: the status is enough."""

    def __init__(self, model: str, limit: int, encoding: str) -> None:
        self._limit = limit
        self._body = bytearray()
        try:
            self._unpacker: Unpacker | None = Unpacker(model, limit, encoding)
        except TooMuch:
            self._unpacker = None

    def take(self, data: bytes) -> bool:
        """Add bytes. Returns False when no more are needed."""
        try:
            for piece in self._unpacker.feed(data) if self._unpacker else ():
                self._body += piece
        except TooMuch:
            return False
        return self._unpacker is not None and len(self._body) < self._limit

    def short(self) -> bytes:
        """Return the part that LiteLLM receives."""
        return shortened(bytes(self._body))


def shortened(body: bytes) -> bytes:
    """Shorten an error's body, and keep what identifies the error. JSON stays JSON."""
    if len(body) <= MAX_ERROR_BYTES:
        return body
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:MAX_ERROR_BYTES]
    for length in TEXT_CHARACTERS:
        short = orjson.dumps(_cut(value, length, _DEPTH))
        if len(short) <= MAX_ERROR_BYTES:
            return short
    return body[:MAX_ERROR_BYTES]


def _checked(line: bytes) -> bytes:
    """Return a long line unchanged if it is a well-formed event, else shortened."""
    content = line.strip()
    head, content = (b"data: ", content[5:].strip()) if content.startswith(b"data:") else (b"", content)
    try:
        event = orjson.loads(content)
    except orjson.JSONDecodeError:
        return line[:MAX_ERROR_BYTES] + b"\n"
    if _is_error(event):
        return head + shortened(content) + b"\n"
    if _is_wide(event):
        return line[:MAX_ERROR_BYTES] + b"\n"
    long = {
        name: event[name][: TEXT_CHARACTERS[0]]
        for name in _NAMES
        if isinstance(event.get(name), str) and len(event[name]) > TEXT_CHARACTERS[0]
    }
    return head + orjson.dumps({**event, **long}) + b"\n" if long else line


def _is_wide(event: Any) -> bool:
    """Whether an event has too many members."""
    count, waiting = 0, [event]
    while waiting and count <= MAX_MEMBERS:
        value = waiting.pop()
        if isinstance(value, dict | list):
            count += len(value)
            waiting.extend(islice(value.values() if isinstance(value, dict) else value, MAX_MEMBERS))
    return count > MAX_MEMBERS


def _is_error(event: Any) -> bool:
    if not isinstance(event, dict):
        return True
    return any(event.get(key) for key in _ERROR_KEYS) or "error" in (event.get("type"), event.get("object"))


def _cut(value: Any, length: int, depth: int) -> Any:
    if isinstance(value, str):
        return value[:length]
    if isinstance(value, dict | list) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key[:length]: _cut(item, length, depth - 1) for key, item in list(value.items())[:_WIDTH]}
    if isinstance(value, list):
        return [_cut(item, length, depth - 1) for item in value[:_WIDTH]]
    return value
