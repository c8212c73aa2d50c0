"""The preview of an artifact: what the model reads of it, from the artifact without what its schema hides. Pure.

Rule: the preview has at most some 4 KiB, and its work is bounded, however large the artifact is.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from contracts.artifacts.references import JsonType
from contracts.tools.responses import ArtifactPreview
from services.shared.redaction.json_values import well_formed
from services.shared.redaction.placeholders import json_type, stored_size, wire_size
from services.shared.redaction.separation import Path, dotted
from services.shared.redaction.stored_values import stored_text

MAX_HEAD_CHARACTERS = 1_000
_MAX_HEAD_BYTES = 3 * 1024
"""As JSON in the message, where quotation marks of the head need two bytes."""
_MAX_COUNTS = 20
_MAX_COUNTS_BYTES = 1024
_MAX_LEVELS = 3
"""Levels below the artifact itself on which lists are counted."""
_MAX_INSPECTED = 1_000
"""Parts of the artifact that are inspected for lists."""


def preview_of(shown: Any, artifact: Any) -> ArtifactPreview:
    """Return the preview of an artifact. `shown`: the artifact with placeholders of what its schema hides."""
    head = well_formed(stored_text(shown)[:MAX_HEAD_CHARACTERS])
    while (size := wire_size(head)) > _MAX_HEAD_BYTES:
        head = head[: len(head) * _MAX_HEAD_BYTES // size]
    return ArtifactPreview(
        json_type=cast("JsonType", json_type(artifact)),
        size=stored_size(artifact),
        counts=_counts(shown),
        head=head,
    )


def _counts(shown: Any) -> dict[str, int]:
    """Return the number of members of the object itself, and of items of each list: the outer ones first."""
    found: dict[str, int] = {}
    room = _MAX_COUNTS_BYTES
    for path, value in islice(_breadth_first(shown), _MAX_INSPECTED):
        if not (isinstance(value, list) or (not path and isinstance(value, Mapping))):
            continue
        name = well_formed(dotted(path)) if path else ""
        room -= wire_size({name: len(value)})
        if room < 0 or len(found) >= _MAX_COUNTS:
            break
        found[name] = len(value)
    return found


def _breadth_first(shown: Any) -> Iterator[tuple[Path, Any]]:
    waiting: deque[tuple[Path, Any]] = deque([((), shown)])
    while waiting:
        path, value = waiting.popleft()
        yield path, value
        if len(path) >= _MAX_LEVELS or len(waiting) >= _MAX_INSPECTED:
            continue
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        waiting.extend(((*path, key), item) for key, item in islice(items, _MAX_INSPECTED))
