"""The context of a call, as a tool's function sees it (`ToolContext`), with the pauses in which it asks a person.

Rule 1: `progress` and `emit_artifact` act when they are called. A coroutine awaits what they return, so that it does
not produce faster than the connection sends; a plain function, which runs in a thread, just calls them.
Rule 2: the function ends at `ctx.pause`, and no process waits for the person. The next round runs it from its
beginning: its pauses are counted from 0, those with an answer return it at once, and the first without one ends the
round.
Rule 3: what ends a round is a BaseException, which `except Exception` lets pass. A function that catches it all the
same fails: its caller would take what it returns for the result.
"""

import asyncio
import base64
import concurrent.futures
import logging
from collections.abc import Awaitable, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from contracts.artifacts import ArtifactRef
from contracts.runs.pauses import MAX_STATE_BYTES, PauseAnswer
from contracts.tools import messages as wire
from contracts.wire import base
from contracts.wire.faults import describe
from runwire.errors import ToolError

T = TypeVar("T")
Reason = Literal["input", "approval", "confirmation"]
M = TypeVar("M")
ToolLogger = logging.Logger | logging.LoggerAdapter[logging.Logger]

_VALID_NAMES = {
    "stream_id": "it has up to 128 letters, digits, `_`, `-` and `.`, and starts with none of the last two",
    "artifact_type": "it is a word such as `echarts`, or a media type such as `audio/wav`",
}


class Awaited(Generic[T]):
    """What comes later, or is there: a coroutine awaits it, a plain function in its thread takes `value`."""

    def __init__(self, found: "concurrent.futures.Future[T]") -> None:
        self._found = found

    @property
    def value(self) -> T:
        """Wait for it."""
        return self._found.result()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._found).__await__()


def known(value: T) -> Awaited[T]:
    """Return a value that is there already."""
    found: concurrent.futures.Future[T] = concurrent.futures.Future()
    found.set_result(value)
    return Awaited(found)


class ToolContext(Protocol):
    """One call, as the function that works on it sees it.

    `idempotency_key` is the same for every repetition of the call and unique over all runs: pass it to whatever must
    not happen twice. `deadline_at` is Unix time in ms, by the clock of this machine. `context` is the caller's
    `tool_context`; the model never sees it. `state` is kept from one pause of the call to the next, up to 32 KiB as
    JSON. `request_id` is what the caller named the request, else the run; `context_id` is the session, else the run.
    """

    call_id: str
    run_id: str
    tenant: str
    session_id: str | None
    request_id: str
    context_id: str
    user_id: str | None
    trace_id: str | None
    idempotency_key: str
    deadline_at: int
    context: Mapping[str, Any]
    state: dict[str, Any]
    logger: ToolLogger

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted.

        A coroutine is cancelled as well; a plain function should check this from time to time.
        """

    @overload
    def pause(
        self,
        reason: Reason = ...,
        payload: Any = ...,
        *,
        schema: type[M],
        title: str = ...,
        expires: timedelta | None = ...,
        default: M | None = ...,
    ) -> Awaited[M]: ...
    @overload
    def pause(
        self,
        reason: Reason = ...,
        payload: Any = ...,
        *,
        schema: dict[str, Any] | None = ...,
        title: str = ...,
        expires: timedelta | None = ...,
        default: Any = ...,
    ) -> Awaited[Any]: ...
    def pause(
        self,
        reason: Reason = "input",
        payload: Any = None,
        *,
        schema: Any = None,
        title: str = "",
        expires: timedelta | None = None,
        default: Any = None,
    ) -> Awaited[Any]:
        """Ask a person, and return the answer: `await ctx.pause(…)`; in a plain function `ctx.pause(…).value`.

        Without an answer yet, the function ends here, and no process waits. Once there is one, the function runs again
        from its beginning, and its n-th pause returns the n-th answer. What must not run twice belongs into `state`.

        Args:
            reason: `input`, `approval` or `confirmation`.
            payload: any JSON that the person needs to decide.
            schema: of `input`, the type of the answer, a pydantic model for instance, or a JSON Schema. Without one the
                answer is any JSON. An approval gives True.
            title: one line, up to 200 characters.
            expires: 7 days unless set, at most 365.
            default: the answer if nobody has answered by then; without one it is a rejection.

        Raises:
            ToolError: code `rejected`, with the person's note; `pause_unsupported` if the caller accepts no pauses.
            ValueError: `state` is above 32 KiB as JSON, the pause is too large, or an approval has a schema.
        """

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Report progress: a text for people, a fraction from 0 to 1. Restarts the tool's `timeout_s`."""

    def emit_artifact(
        self, *, stream_id: str, chunk: Any, done: bool = False, artifact_type: str | None = None
    ) -> Awaitable[None]:
        """Send a piece of an artifact while it grows: any JSON value up to 128 KiB. Restarts the tool's `timeout_s`.

        Bytes are sent as base64; their `artifact_type` is `bytes` unless it is a media type such as `audio/wav`.
        The result must hold the whole artifact. Raises ValueError when the piece is larger, or not JSON.
        """

    def read_artifact(self, artifact: ArtifactRef, offset: int = 0, length: int = base.PART_BYTES) -> Awaited[bytes]:
        """Return bytes of an artifact: `await ctx.read_artifact(…)`; in a plain function `ctx.read_artifact(…).value`.

        The artifact is that of an argument of the type `ArtifactRef` whose schema says `by_reference`. A range has at
        most 1 MiB; fewer bytes than were asked for are the last ones. Restarts the tool's `timeout_s`. Raises
        ToolError, retryable if the artifact store is away.
        """

    def set_content(self, text: str) -> None:
        """Give the model a text beside the result: up to 32 KiB of UTF-8. The last text counts.

        It is sent with the result; a call that fails has none. Raises ValueError when it is larger.
        """


class Paused(BaseException):
    """Ends a round of a call: the function waits for a person. `pause` is what the caller receives."""

    def __init__(self, pause: wire.PauseReply) -> None:
        super().__init__("ctx.pause ends this round of the call with this exception: do not catch it")
        self.pause = pause


class Pauses:
    """The pauses of one call in one round. Contexts inherit `pause` and `state`.

    `state` is kept from round to round: what must not happen twice is noted there.
    """

    def __init__(self, answers: Sequence[PauseAnswer], state: dict[str, Any], *, accepted: bool = True) -> None:
        """`accepted`: the caller accepts pauses."""
        self.state = state
        self._answers = {answer.number: answer for answer in answers}
        self._accepted = accepted
        self._count = 0
        self._paused: Paused | None = None

    def pause(
        self,
        reason: Reason = "input",
        payload: Any = None,
        *,
        schema: Any = None,
        title: str = "",
        expires: timedelta | None = None,
        default: Any = None,
    ) -> Awaited[Any]:
        """Ask a person; `ToolContext.pause` says more."""
        if self._paused is not None:
            raise self._paused
        if reason != "input" and schema is not None:
            raise ValueError(f"a person approves or rejects a pause for {reason}: only one for `input` has a schema")
        number, self._count = self._count, self._count + 1
        adapter = None if schema is None or isinstance(schema, dict) else TypeAdapter[Any](schema)
        answer = self._answers.get(number)
        if answer is not None:
            return known(_value(answer, adapter))
        if not self._accepted:
            raise ToolError(
                "this tool asks a person, and its caller cannot wait for the answer", code="pause_unsupported"
            )
        json_schema = schema if adapter is None else adapter.json_schema()
        reply = wire.PauseReply(
            number=number,
            reason=reason,
            title=title,
            payload=_as_json(payload),
            input_schema=json_schema,
            state=_as_json(self.state),
            expires_in_s=None if expires is None else expires.total_seconds(),
            default="reject" if default is None else "answer",
            default_answer=_as_json(default),
        )
        if (size := len(to_json(reply.state))) > MAX_STATE_BYTES:
            raise ValueError(f"ctx.state has {size:,} bytes as JSON, and at most {MAX_STATE_BYTES:,} are kept")
        if (size := len(reply.model_dump_json())) > base.MAX_OUTCOME_BYTES:
            most = f"{base.MAX_OUTCOME_BYTES:,} bytes with its payload and schema"
            raise ValueError(f"a pause has at most {most}, not {size:,}")
        self._paused = Paused(reply)
        raise self._paused

    def check_not_caught(self) -> None:
        """Raise ToolError if the function has returned although it has paused."""
        if self._paused is not None:
            raise ToolError(
                "the tool caught what ctx.pause raises, and returned a result: it must let that exception pass",
                code="invalid_pause",
            )


def pause_in(error: BaseException) -> wire.PauseReply | None:
    """Return the pause with which a function has ended, also inside the group of a TaskGroup; None if it failed."""
    if isinstance(error, BaseExceptionGroup):
        pauses, others = error.split(Paused)
        error = error if pauses is None or others is not None else _first(pauses)
    return error.pause if isinstance(error, Paused) else None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _value(answer: PauseAnswer, adapter: TypeAdapter[Any] | None) -> Any:
    if answer.decision == "reject":
        raise ToolError(f"a person said no: {answer.note}" if answer.note else "a person said no", code="rejected")
    if adapter is None:
        return True if answer.decision == "approve" and answer.input is None else answer.input
    try:
        return adapter.validate_json(to_json(answer.input))
    except ValidationError as error:
        raise ToolError(f"the answer does not fit what the tool asked for: {describe(error)}") from error


def _as_json(value: Any) -> Any:
    return from_json(to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="null"))


def encode_content(text: str) -> bytes:
    """Encode a text for the model. Raises ValueError when it is above 32 KiB, or no text that UTF-8 can encode."""
    body = text.encode()
    if len(body) > base.MAX_INLINE_BYTES:
        limit = f"the limit is {base.MAX_INLINE_BYTES}: shorten it, or put it into the result"
        raise ValueError(f"the content has {len(body)} bytes; {limit}")
    return body


def encode_piece(stream_id: str, seq: int, chunk: Any, *, done: bool, artifact_type: str | None) -> bytes:
    """Encode a piece for the wire.

    Raises ValueError when it is not JSON, is larger than 128 KiB, or names its stream or type in an invalid way.
    """
    if isinstance(chunk, bytes | bytearray | memoryview):
        chunk = base64.b64encode(chunk).decode()
        artifact_type = artifact_type if artifact_type and "/" in artifact_type else "bytes"
    try:
        piece = wire.ArtifactPiece(stream_id=stream_id, seq=seq, chunk=chunk, done=done, artifact_type=artifact_type)
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        raise ValueError(f"{field} cannot be used: {_VALID_NAMES.get(str(field), 'it has the wrong type')}") from error
    try:
        body = to_json(piece, inf_nan_mode="constants")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"a chunk of {stream_id!r} is not JSON: {error}") from error
    if len(body) > base.MAX_PIECE_BYTES:
        limit = f"the limit is {base.MAX_PIECE_BYTES}, so emit smaller pieces"
        raise ValueError(f"a chunk of {stream_id!r} has {len(body)} bytes; {limit}")
    return body
