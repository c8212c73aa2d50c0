"""References in plain JSON: recognise one, and build the preview of a too large observation.

A reference is recognised by its shape, which anybody can write. So it grants nothing: the tenant is checked when it is
resolved.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from contracts.artifacts.references import ArtifactRef
from services.shared.redaction.blobs import to_blob
from services.shared.redaction.limits import PREVIEW_CHARACTERS
from services.shared.redaction.placeholders import placeholder_of
from services.shared.redaction.plain import well_formed
from services.shared.redaction.views import MAX_DEPTH

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
    if not isinstance(value, Mapping | list | tuple | ArtifactRef):
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
