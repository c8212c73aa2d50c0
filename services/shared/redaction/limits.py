"""Size limits of data, by place (docs/artifacts.md). Sizes are in bytes; KiB and MB both count in powers of 1,024."""

from collections.abc import Mapping
from typing import Any

from services.shared.redaction.placeholders import wire_size

INLINE_BYTES = 32 * 1024
"""The largest value in a message or in the log, and the largest observation for the model; a larger one is replaced by an ArtifactRef."""

EVENT_INLINE_BYTES = 128 * 1024
"""The largest total of all values in one event."""

HTTP_INLINE_BYTES = 1024 * 1024
"""The largest JSON value that the gateway inlines in place of its reference."""

ARTIFACT_WARNING_BYTES = 1024 * 1024
"""A larger artifact is stored, and the run's payload carries a warning."""

ARTIFACT_FAILURE_BYTES = 50 * 1024 * 1024
"""A larger artifact fails its call with a message to the model; the run continues."""

PREVIEW_CHARACTERS = 1_000
"""Characters of the beginning and of the end of a too large observation that the model reads; a setting may change it."""


def heavy_paths(artifacts: Mapping[str, Any]) -> frozenset[str]:
    """Return the paths whose values must leave the message: those above 32 KiB, then the largest until the rest is within 128 KiB."""
    sizes = {path: wire_size(value) for path, value in artifacts.items()}
    heavy = {path for path, size in sizes.items() if size > INLINE_BYTES}
    total = sum(size for path, size in sizes.items() if path not in heavy)
    for path in sorted(sizes.keys() - heavy, key=lambda path: (-sizes[path], path)):
        if total <= EVENT_INLINE_BYTES:
            break
        heavy.add(path)
        total -= sizes[path]
    return frozenset(heavy)
