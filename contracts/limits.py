"""How large messages, and the values inside them, may be.

Each size once, in bytes; "KiB" and "MB" both count in powers of 1,024.

Rule 1: the sender and the receiver use the same constant, so a message that was accepted can be stored.
Rule 2: a value above its inline size travels as an `ArtifactRef` (docs/artifacts.md). Sizes of values are those of
their compact JSON.
"""

MAX_MESSAGE_BYTES = 1 << 20
"""Of a message in a stream; the streams are created with it."""
MAX_RECORD_BYTES = MAX_MESSAGE_BYTES - 8192
"""Of a record on a run's log; the rest is for headers."""
MAX_REQUEST_BYTES = MAX_MESSAGE_BYTES - (128 << 10)
"""Of a request for a run. The record that opens the run repeats it, beside the digests of all tools, in one message."""
MAX_OUTCOME_BYTES = 512 << 10
"""Of a call's outcome, so that a record has room for it and for what comes with it."""
MAX_ARGUMENT_BYTES = 512 << 10
"""Of a call's arguments as the log holds them. Only the results of very many branches exceed it: a large result of one
is a reference."""
MAX_SPEC_BYTES = 256 << 10
"""Of a tool's announced specification, counted in characters."""

MAX_INLINE_BYTES = 32 << 10
"""Of one value in a message or in the log, and of an observation in the model's context."""
MAX_EVENT_INLINE_BYTES = 128 << 10
"""Of all values inside one event together."""
MAX_HTTP_INLINE_BYTES = 1 << 20
"""Of a JSON value that the gateway puts back in the place of its reference."""

ARTIFACT_WARNING_BYTES = 1 << 20
"""A larger artifact is stored, and the run's payload carries a warning."""
MAX_ARTIFACT_BYTES = 50 << 20
"""A larger artifact fails its call, with a message to the model; the run goes on."""

MAX_PUT_BYTES = 2 << 20
"""Of an artifact that travels in the request itself; a larger one is uploaded in chunks."""
CHUNK_BYTES = 2 << 20
"""Every chunk of an upload but its last, and the longest range of one get. docs/decisions/0007 says why."""

PART_BYTES = 1 << 20
"""Of each part in which a tool answers with a larger result."""
MAX_PIECE_BYTES = 128 << 10
"""Of one piece of an artifact that a tool streams, as JSON."""
MAX_PIECES = 10_000
"""Of one stream of pieces; at one more it breaks."""
