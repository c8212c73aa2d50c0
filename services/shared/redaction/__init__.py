"""The marks that a tool's output schema puts on its result, and what they mean (docs/tools.md): pure functions on JSON values.

`artifact`, `stream`, `stream_id` and `source_field` are marks on a property, `produces_sources` on a model. tool_runner takes every result
apart once (`separate`); the planner redacts again whatever still bears a mark. Nothing in here raises on a value, whatever it holds.
"""

from services.shared.redaction.arguments import Arguments, arguments_of
from services.shared.redaction.blobs import Blob, from_blob, mime_type_of, to_blob
from services.shared.redaction.limits import (
    ARTIFACT_FAILURE_BYTES,
    ARTIFACT_WARNING_BYTES,
    EVENT_INLINE_BYTES,
    HTTP_INLINE_BYTES,
    INLINE_BYTES,
    PREVIEW_CHARACTERS,
    heavy_paths,
)
from services.shared.redaction.nodes import Marks, Schema, read_marks
from services.shared.redaction.paths import Path, dotted
from services.shared.redaction.placeholders import is_placeholder, json_type, placeholder, placeholder_of, stored_size, wire_size
from services.shared.redaction.plain import plain, well_formed
from services.shared.redaction.references import as_reference, holds_reference, shortened
from services.shared.redaction.separation import Parts, Streams, collect, redact, restore, separate
from services.shared.redaction.sources import extract_sources, source_of, unique_sources

__all__ = [
    "ARTIFACT_FAILURE_BYTES",
    "ARTIFACT_WARNING_BYTES",
    "EVENT_INLINE_BYTES",
    "HTTP_INLINE_BYTES",
    "INLINE_BYTES",
    "PREVIEW_CHARACTERS",
    "Arguments",
    "Blob",
    "Marks",
    "Parts",
    "Path",
    "Schema",
    "Streams",
    "arguments_of",
    "as_reference",
    "collect",
    "dotted",
    "extract_sources",
    "from_blob",
    "heavy_paths",
    "holds_reference",
    "is_placeholder",
    "json_type",
    "mime_type_of",
    "placeholder",
    "placeholder_of",
    "plain",
    "read_marks",
    "redact",
    "restore",
    "separate",
    "shortened",
    "source_of",
    "stored_size",
    "to_blob",
    "unique_sources",
    "well_formed",
    "wire_size",
]
