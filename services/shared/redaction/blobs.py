"""Encode artifacts to bytes and decode them, so that `ArtifactRef.size` equals the size in a placeholder."""

import json
from dataclasses import dataclass
from typing import Any, cast

import orjson

from contracts.artifacts.references import ArtifactRef, JsonType
from services.shared.redaction.placeholders import json_type

_MIME_TYPES = {"str": "text/plain; charset=utf-8", "bytes": "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Blob:
    """The stored form of an artifact, and what its reference says about it."""

    body: bytes
    mime_type: str
    json_type: JsonType
    items: int | None


def to_blob(value: Any) -> Blob:
    """Encode an artifact.

    Raises ValueError for a value that is not JSON, RecursionError for one that is nested too deep.
    """
    kind = cast("JsonType", json_type(value))
    return Blob(_encoded(value), mime_type_of(kind), kind, len(value) if kind == "list" else None)


def mime_type_of(kind: JsonType) -> str:
    """Return the media type under which `to_blob` stores values of a kind."""
    return _MIME_TYPES.get(kind, "application/json")


def from_blob(body: bytes, ref: ArtifactRef) -> Any:
    """Decode the bytes of `to_blob`.

    A user's own file stays bytes. Raises ValueError if the bytes contradict the reference.
    """
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
