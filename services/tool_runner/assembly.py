"""Put a finished stream of pieces together, where no field of the result holds it as a whole (ACTIONS 7). Pure.

Pieces that are all text make one text; base64 of a binary type makes bytes; any other JSON makes the list of the pieces, which a reader
applies in order.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from contracts.events import ArtifactChunk

_BINARY = frozenset({"binary", "bytes"})
_TEXTUAL = ("text/", "application/json", "application/xml")


def assemble(pieces: Sequence[ArtifactChunk]) -> Any:
    """Return what the pieces of one stream, in order, come to."""
    chunks = [piece.chunk for piece in pieces]
    if not all(isinstance(chunk, str) for chunk in chunks):
        return chunks
    kind = next((piece.artifact_type for piece in pieces if piece.artifact_type), "")
    if kind in _BINARY or ("/" in kind and not kind.startswith(_TEXTUAL)):
        try:
            return b"".join(base64.b64decode(chunk, validate=True) for chunk in chunks)
        except (binascii.Error, ValueError):
            pass  # Not what its type promised: text, then.
    return "".join(chunks)
