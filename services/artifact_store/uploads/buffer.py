"""Collect the pieces of one artifact stream into one text, one byte string, or the list of the pieces.

Pieces that are all text become one text. Base64 text of a binary type becomes bytes. Any other JSON becomes the list of
the pieces, which a reader applies in order. The kind is known after the last piece.

Rule: each piece is held once, as a line of JSON, in a temporary file beyond a megabyte. The result is produced while
the file is read.
"""

import base64
import binascii
import hashlib
import json
import tempfile
from collections.abc import Iterator
from typing import Any, Literal

import orjson

from contracts.runs.events import ArtifactChunk
from services.shared.redaction.stored_values import to_blob

_BINARY_TYPES = frozenset({"binary", "bytes"})
_TEXT_TYPES = ("text/", "application/json", "application/xml")
_MAX_MEMORY_BYTES = 1 << 20
_BLOCK_BYTES = 256 << 10


class StreamBuffer:
    """The pieces of one stream. Its methods may block on a disk. The caller closes it."""

    def __init__(self) -> None:
        self.count = 0
        self.is_finished = False
        """Whether a piece was marked as the last."""
        # `close` is what its owner calls.
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115
        self.artifact_type = ""
        """The type that the first typed piece declares."""
        self._is_text = self._is_base64 = True
        self._json = self._utf8 = self._decoded = 0

    def add(self, piece: ArtifactChunk) -> None:
        """Append the next piece."""
        line = to_blob([piece.chunk]).body[1:-1]  # in a list, since a text by itself would be stored without its quotes
        self._file.write(line + b"\n")
        self.count += 1
        self.is_finished |= piece.done
        self.artifact_type = self.artifact_type or piece.artifact_type or ""
        self._json += len(line)
        if isinstance(piece.chunk, str):
            self._utf8 += len(piece.chunk.encode())
            if self._is_base64:
                try:
                    self._decoded += len(base64.b64decode(piece.chunk, validate=True))
                except (binascii.Error, ValueError):
                    self._is_base64 = False  # Not base64, whatever its type says: treat it as text.
        else:
            self._is_text = False

    @property
    def json_type(self) -> Literal["list", "str", "bytes"]:
        """The kind of the assembled value."""
        if not self._is_text:
            return "list"
        is_binary = self.artifact_type in _BINARY_TYPES or (
            "/" in self.artifact_type and not self.artifact_type.startswith(_TEXT_TYPES)
        )
        return "bytes" if is_binary and self._is_base64 else "str"

    @property
    def size(self) -> int:
        """The size of the stored form in bytes."""
        as_list = self._json + max(self.count - 1, 0) + len("[]")
        return {"list": as_list, "str": self._utf8, "bytes": self._decoded}[self.json_type]

    @property
    def wire_size(self) -> int:
        """The size inside a message in bytes."""
        in_one_text = self._json - 2 * self.count + len('""')
        return {"list": self.size, "str": in_one_text, "bytes": 4 * -(-self._decoded // 3) + len('""')}[self.json_type]

    def chunks(self) -> Iterator[bytes]:
        """Yield the stored form from the beginning."""
        block = bytearray()
        for part in self._parts():
            block += part
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)

    def _parts(self) -> Iterator[bytes]:
        kind = self.json_type
        self._file.seek(0)
        for number, line in enumerate(self._file):
            if kind == "list":
                yield (b"," if number else b"[") + line[:-1]
            else:
                text: str = orjson.loads(line)
                yield text.encode() if kind == "str" else base64.b64decode(text)
        if kind == "list":
            yield b"]" if self.count else b"[]"

    def value(self) -> Any:
        """Return the assembled value."""
        body = b"".join(self.chunks())
        if self.json_type == "bytes":
            return body
        # Not by orjson: it would turn a large integer into a float.
        return body.decode() if self.json_type == "str" else json.loads(body)

    def digest(self) -> str:
        """Return the SHA-256 of the stored form."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def close(self) -> None:
        """Delete the pieces."""
        self._file.close()
