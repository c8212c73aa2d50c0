"""The annotations of a tool's output schema and what they do to its result (docs/tools.md).

Pure functions on JSON values.

`artifact`, `stream`, `stream_id` and `source_field` annotate a property, `produces_sources` a model. The tool runner
separates each result once (`separate`). The planner redacts again, for results that still hold annotated values. No
function here raises on any value.
"""

from services.shared.redaction.annotation_cache import AnnotationCache
from services.shared.redaction.arguments import Arguments, arguments_of
from services.shared.redaction.blobs import Blob, from_blob, mime_type_of, to_blob
from services.shared.redaction.canonical import canonical_json
from services.shared.redaction.limits import (
    PREVIEW_CHARACTERS,
    heavy_paths,
)
from services.shared.redaction.nodes import Annotations, Schema, read_annotations
from services.shared.redaction.paths import Path, dotted
from services.shared.redaction.placeholders import (
    is_placeholder,
    json_type,
    placeholder,
    placeholder_of,
    stored_size,
    wire_size,
)
from services.shared.redaction.plain import plain, well_formed
from services.shared.redaction.references import as_reference, holds_reference, shortened, stored_text
from services.shared.redaction.separation import SeparatedResult, Streams, collect, redact, restore, separate
from services.shared.redaction.sources import extract_sources, source_of, unique_sources

__all__ = [
    "PREVIEW_CHARACTERS",
    "AnnotationCache",
    "Annotations",
    "Arguments",
    "Blob",
    "Path",
    "Schema",
    "SeparatedResult",
    "Streams",
    "arguments_of",
    "as_reference",
    "canonical_json",
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
    "read_annotations",
    "redact",
    "restore",
    "separate",
    "shortened",
    "source_of",
    "stored_size",
    "stored_text",
    "to_blob",
    "unique_sources",
    "well_formed",
    "wire_size",
]
