"""What a tool's function gets to know of its call (`ToolContext`), and how it fails one (`ToolError`).

Rule: `progress` and `emit_artifact` act when they are called. A coroutine awaits what they return, so that it is not
faster than the wire; a plain function, which runs in a thread, just calls them.
"""

import base64
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError
from pydantic_core import to_json

from runwire._contracts_import import limits
from runwire._contracts_import import tools as wire

_FORMS = {
    "stream_id": "it is up to 128 letters, digits, `_`, `-` and `.`, the last two not first",
    "artifact_type": "it is a word such as `echarts`, or a media type such as `audio/wav`",
}


class ToolError(Exception):
    """The tool cannot do what it was asked; the model reads the text, so it says what to do differently.

    `retryable`: the same call may succeed later.
    """

    def __init__(self, reason: str, *, retryable: bool = False, code: str = "tool_error") -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.code = code


class ToolContext(Protocol):
    """One call, as the function that works on it sees it.

    `idempotency_key` is the same on every repetition of the call and unique over all runs: hand it to whatever must not
    happen twice. `deadline_at` is Unix time in ms. `context` is the caller's `tool_context`; the model never sees it.
    """

    call_id: str
    run_id: str
    tenant: str
    session_id: str | None
    user_id: str | None
    trace_id: str | None
    idempotency_key: str
    deadline_at: int
    context: Mapping[str, Any]
    logger: Any

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more.

        A coroutine is cancelled as well; a plain function should look now and then.
        """

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Show how far the work is: a text for people, a fraction from 0 to 1. Restarts the tool's `timeout_s`."""

    def emit_artifact(
        self, *, stream_id: str, chunk: Any, done: bool = False, artifact_type: str | None = None
    ) -> Awaitable[None]:
        """Show a piece of an artifact while it grows: any JSON value up to 128 KiB. Restarts the tool's `timeout_s`.

        Bytes travel as base64; their `artifact_type` is `bytes` unless it is a media type such as `audio/wav`.
        Raises ValueError when the piece is heavier or no JSON; the artifact as a whole belongs into the result.
        """


def encode_piece(stream_id: str, seq: int, chunk: Any, *, done: bool, artifact_type: str | None) -> bytes:
    """Return a piece as it travels.

    Raises ValueError when it is no JSON, above 128 KiB, or its stream or type has no usable name.
    """
    if isinstance(chunk, bytes | bytearray | memoryview):
        chunk = base64.b64encode(chunk).decode()
        artifact_type = artifact_type if artifact_type and "/" in artifact_type else "bytes"
    try:
        piece = wire.ArtifactPiece(stream_id=stream_id, seq=seq, chunk=chunk, done=done, artifact_type=artifact_type)
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        raise ValueError(f"{field} cannot be used: {_FORMS.get(str(field), 'it has the wrong type')}") from error
    try:
        body = to_json(piece, inf_nan_mode="constants")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"a chunk of {stream_id!r} is no JSON: {error}") from error
    if len(body) > limits.MAX_PIECE_BYTES:
        raise ValueError(
            f"a chunk of {stream_id!r} weighs {len(body)} bytes; at most {limits.MAX_PIECE_BYTES} go at once, so emit smaller pieces"
        )
    return body
