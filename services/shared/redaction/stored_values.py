"""The stored form of artifacts, their references in plain JSON, and the preview of a too large observation.

A reference is recognised by its shape, which anybody can write. So it grants nothing: the tenant is checked when it is
resolved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from pydantic import ValidationError

from contracts.artifacts import ArtifactRef, JsonType
from contracts.wire.base import MAX_EVENT_INLINE_BYTES, MAX_INLINE_BYTES
from services.shared.redaction.annotations import MAX_DEPTH
from services.shared.redaction.json_values import json_type, placeholder_of, well_formed, wire_size

PREVIEW_CHARACTERS = 1_000
"""Characters of the beginning and of the end of a too large observation that the model reads; a setting may change
it."""


def heavy_paths(artifacts: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths of values to offload: those above 32 KiB, then the largest until the rest is within 128 KiB."""
    sizes = {path: wire_size(value) for path, value in artifacts.items()}
    heavy = {path for path, size in sizes.items() if size > MAX_INLINE_BYTES}
    total = sum(size for path, size in sizes.items() if path not in heavy)
    for path in sorted(sizes.keys() - heavy, key=lambda path: (-sizes[path], path)):
        if total <= MAX_EVENT_INLINE_BYTES:
            break
        heavy.add(path)
        total -= sizes[path]
    return frozenset(heavy)


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


_SCALARS = (str, int, float, type(None))
_NEEDED = frozenset({"artifact_id", "mime_type", "size", "sha256"})


def as_reference(value: Any) -> ArtifactRef | None:
    """Return the reference that `value` is, or None."""
    if isinstance(value, ArtifactRef):
        return value
    if not isinstance(value, Mapping) or not value.keys() >= _NEEDED:
        return None
    try:
        return ArtifactRef.model_validate(value)
    except ValidationError:
        return None


def holds_reference(value: Any, depth: int = 0) -> bool:
    """Return whether `value` contains a reference; True beyond 64 levels."""
    if isinstance(value, _SCALARS) or not isinstance(value, Mapping | list | tuple | ArtifactRef):
        return False
    if depth > MAX_DEPTH or as_reference(value) is not None:
        return True
    items = value.values() if isinstance(value, Mapping) else value
    return any(holds_reference(item, depth + 1) for item in items)


def shortened(redacted: Any, ref: ArtifactRef, characters: int = PREVIEW_CHARACTERS) -> dict[str, Any]:
    """Return the preview of a redacted observation that is too large: placeholder, reference, beginning and end.

    Each end has at most `characters` of the observation as it is stored: text as it is, anything else as JSON.
    """
    shown = {"observation": placeholder_of(ref), "artifact": ref.model_dump(mode="json", exclude_none=True)}
    text = stored_text(redacted)
    if len(text) <= 2 * characters:
        return shown | {"head": well_formed(text), "tail": ""}
    return shown | {"head": well_formed(text[:characters] + "…"), "tail": well_formed("…" + text[-characters:])}


def stored_text(redacted: Any) -> str:
    """Return a value as it is stored: text as it is, anything else as JSON; empty if it cannot be stored."""
    if isinstance(redacted, str):
        return redacted
    try:
        return to_blob(redacted).body.decode(errors="replace")
    except (ValueError, RecursionError):  # It cannot be stored either.
        return ""
