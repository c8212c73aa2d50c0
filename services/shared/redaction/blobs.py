"""How an artifact becomes bytes and bytes become an artifact again, so that `ArtifactRef.size` is the size that a placeholder shows."""

import json
from dataclasses import dataclass
from typing import Any, cast

import orjson

from contracts.artifacts import ArtifactRef, JsonType
from services.shared.redaction.placeholders import json_type

_MIME_TYPES = {"str": "text/plain; charset=utf-8", "bytes": "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Blob:
    """The stored form of an artifact and what its reference says about it."""

    body: bytes
    mime_type: str
    json_type: JsonType
    items: int | None


def to_blob(value: Any) -> Blob:
    """Encode an artifact. Raises ValueError for what is no JSON, and RecursionError for what is nested too deep."""
    kind = cast("JsonType", json_type(value))
    return Blob(_encoded(value), mime_type_of(kind), kind, len(value) if kind == "list" else None)


def mime_type_of(kind: JsonType) -> str:
    """Return the type under which `to_blob` stores values of a kind."""
    return _MIME_TYPES.get(kind, "application/json")


def from_blob(body: bytes, ref: ArtifactRef) -> Any:
    """Decode what `to_blob` made. A file of somebody's own is bytes. Raises ValueError when the bytes are not what the reference says."""
    if ref.json_type in {None, "bytes"}:
        return body
    if ref.json_type == "str":
        return body.decode("utf-8", "surrogatepass")
    return json.loads(body)  # exact where orjson would turn a large integer into a float


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):  # what orjson is too strict for: depth, large integers, lone surrogates
        try:
            return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
        except TypeError as error:
            raise ValueError(str(error)) from error
