"""References among plain JSON: recognising one, and what stands in the context for an observation that is too heavy.

A reference is recognised by its shape, and anybody can write that shape. So it grants nothing: the tenant is checked where it is resolved.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from contracts.artifacts import ArtifactRef
from services.shared.redaction.blobs import to_blob
from services.shared.redaction.limits import PREVIEW_CHARACTERS
from services.shared.redaction.placeholders import placeholder_of
from services.shared.redaction.plain import well_formed
from services.shared.redaction.views import MAX_DEPTH

_NEEDED = frozenset({"artifact_id", "mime_type", "size", "sha256"})


def as_reference(value: Any) -> ArtifactRef | None:
    """Return the reference that `value` is, or None for any other value."""
    if isinstance(value, ArtifactRef):
        return value
    if not isinstance(value, Mapping) or not value.keys() >= _NEEDED:
        return None
    try:
        return ArtifactRef.model_validate(value)
    except ValidationError:
        return None


def holds_reference(value: Any, depth: int = 0) -> bool:
    """Tell whether a reference stands anywhere in `value`; deeper than 64 levels the answer is yes."""
    if not isinstance(value, Mapping | list | tuple | ArtifactRef):
        return False
    if depth > MAX_DEPTH or as_reference(value) is not None:
        return True
    items = value.values() if isinstance(value, Mapping) else value
    return any(holds_reference(item, depth + 1) for item in items)


def shortened(redacted: Any, ref: ArtifactRef, characters: int = PREVIEW_CHARACTERS) -> dict[str, Any]:
    """Return what the model sees of a redacted observation that is too large: its placeholder, its reference, its beginning and its end.

    Of each end so many characters, as the observation is stored: a text as it is, anything else as JSON.
    """
    shown = {"observation": placeholder_of(ref), "artifact": ref.model_dump(mode="json", exclude_none=True)}
    text = _stored_text(redacted)
    if len(text) <= 2 * characters:
        return shown | {"head": well_formed(text), "tail": ""}
    return shown | {"head": well_formed(text[:characters] + "…"), "tail": well_formed("…" + text[-characters:])}


def _stored_text(redacted: Any) -> str:
    if isinstance(redacted, str):
        return redacted
    try:
        return to_blob(redacted).body.decode(errors="replace")
    except (ValueError, RecursionError):  # It will not be stored either.
        return ""
