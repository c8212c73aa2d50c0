"""The sizes of messages and of the values inside them, in bytes.

Rule 1: sender and receiver use the same constant, so an accepted message can be stored.
Rule 2: a value above its inline size is sent as an `ArtifactRef` (docs/artifacts.md). Sizes of values are those of
their compact JSON.
"""

KIB, MIB = 1 << 10, 1 << 20

MAX_MESSAGE_BYTES = MIB
"""Of a message in a stream, as the streams are configured."""
MAX_RECORD_BYTES = MAX_MESSAGE_BYTES - 8 * KIB
"""Of a record on a run's log; the rest is for headers."""
MAX_REQUEST_BYTES = MAX_MESSAGE_BYTES - 128 * KIB
"""Of a request for a run. The record that opens the run contains it, beside the digests of all tools."""
MAX_OUTCOME_BYTES = 512 * KIB
"""Of a call's outcome, so that a record has room for it and for the events beside it."""
MAX_ARGUMENT_BYTES = 512 * KIB
"""Of a call's arguments in the log. Only the results of very many branches exceed it, since a large result is a
reference."""
MAX_SPEC_BYTES = 256 * KIB
"""Of a tool's announced specification, counted in characters."""

MAX_INLINE_BYTES = 32 * KIB
"""Of one value in a message or in the log, and of an observation in the model's context."""
MAX_EVENT_INLINE_BYTES = 128 * KIB
"""Of all values inside one event together."""
MAX_HTTP_INLINE_BYTES = MIB
"""Of a JSON value that the gateway returns instead of its reference."""

ARTIFACT_WARNING_BYTES = MIB
"""A larger artifact is stored, and the run's payload carries a warning."""
MAX_ARTIFACT_BYTES = 50 * MIB
"""A larger artifact fails its call, with a message to the model; the run goes on."""

MAX_PUT_BYTES = 2 * MIB
"""Of an artifact that travels in the request itself; a larger one is uploaded in chunks."""
CHUNK_BYTES = 2 * MIB
"""Of every chunk of an upload but the last, and of the longest range of one get. docs/decisions/0007 says why."""

PART_BYTES = MIB
"""Of each part of a tool's result that is larger."""
MAX_PIECE_BYTES = 128 * KIB
"""Of one piece of an artifact stream, as JSON."""
MAX_PIECES = 10_000
"""Of one artifact stream. It breaks at the next piece."""
