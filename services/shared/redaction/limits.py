"""Which values leave a message for the artifact store (docs/artifacts.md); the sizes are in `contracts.wire.limits`."""

from collections.abc import Mapping
from typing import Any

from contracts.wire.limits import MAX_EVENT_INLINE_BYTES, MAX_INLINE_BYTES
from services.shared.redaction.placeholders import wire_size

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
