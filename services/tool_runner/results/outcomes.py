"""How a round of a call ends: its outcome, or the pause that its tool asks for.

A result is parsed and checked, and what the model sees is separated from what people see.

Rule 1: each result of a tool leads to exactly one CallFinished that fits into the inbox.
Rule 2: large results are processed one at a time, in a thread, so that memory and other calls are not affected.
Rule 3: a pause that reaches the planner can be shown, answered and resumed: its schema can be used, its default fits
the schema, and all of it fits into a record.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from contracts.runs.inbox import CallFinished, CallPaused
from contracts.runs.pauses import DEFAULT_PAUSE_S, MAX_PAUSE_S, MAX_STATE_BYTES
from contracts.runs.payload import Source
from contracts.tools.messages import CallRequested, PauseReply, RespondedArtifact, ToolSpec
from contracts.wire.base import KIB, MAX_INLINE_BYTES, MAX_OUTCOME_BYTES, MAX_READ_BYTES
from contracts.wire.faults import Fault, describe
from runwire.plans.templates import is_deeper
from services.runtime import exact_json
from services.shared.artifacts.client import Description
from services.shared.json_schema.checks import InvalidSchema, check_schema, complaints
from services.shared.redaction.annotations import AnnotationCache
from services.shared.redaction.json_values import plain, wire_size
from services.shared.redaction.separation import SeparatedResult, dotted, restore, separate
from services.tool_runner.artifacts.store import CallArtifacts, StoredResult
from services.tool_runner.calls.progress import CallProgress
from services.tool_runner.errors import InvalidPause, InvalidResult, ResultTooLarge
from services.tool_runner.results.forms import NamedArtifact, take_out
from services.tool_runner.transports.driver import ResultBody

T = TypeVar("T")

MAX_INLINE_WORK_BYTES = 32 * 1024
"""Smaller results and arguments are processed without a thread."""
_MAX_DEPTH = 100


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run work whose duration depends on a number of bytes: in a thread if there are many."""
    return work() if size <= MAX_INLINE_WORK_BYTES else await asyncio.to_thread(work)


def read_result(call: CallRequested, spec: ToolSpec, result: ResultBody) -> Any:
    """Parse and check a tool's result. Text alone is null; a tool with an output schema has to give more.

    Raises InvalidResult, without quoting the result, which may hold hidden values.
    """
    body = result.read()
    if not body and spec.output_schema is not None:
        raise InvalidResult(f"{call.tool} gave no structuredContent, which its outputSchema requires: send a result")
    if not body and result.content is not None:
        return None
    try:
        value = exact_json.loads_strictly(body)
        is_deep = is_too_deep(value, body)
    except ValueError as error:
        raise InvalidResult(f"what {call.tool} answered is no JSON: {error}") from error
    except RecursionError:
        is_deep = True
    if is_deep:
        raise InvalidResult(f"what {call.tool} answered is nested more than {_MAX_DEPTH} levels deep")
    if spec.output_schema is not None:
        try:
            found = complaints(value, spec.output_schema, masked=True)
        except InvalidSchema as error:
            raise InvalidResult(f"the output schema of {call.tool} cannot be used: {error}") from error
        if found:
            raise InvalidResult(f"what {call.tool} answered does not fit its outputSchema: {'; '.join(found)}")
    return value


def is_too_deep(value: Any, body: bytes) -> bool:
    """Return whether a value is nested deeper than messages may be. `body`: the JSON that it was parsed from."""
    return body.count(b"[") + body.count(b"{") > _MAX_DEPTH and is_deeper(value, _MAX_DEPTH)


_MAX_ANSWERS_BYTES = 192 * KIB
"""Of all answers before a further pause: the next round brings them again, in one message with the arguments."""


def read_pause(call: CallRequested, data: bytes) -> PauseReply:
    """Return what the tool asks. Raises InvalidPause, which tells the tool's author what is wrong."""
    try:
        pause = PauseReply.model_validate_json(data)
    except ValidationError as error:
        raise InvalidPause(f"the pause of {call.tool} cannot be used: {describe(error)}") from error
    if (fault := _fault(call, pause, data)) is not None:
        raise InvalidPause(f"the pause of {call.tool} cannot be used: {fault}")
    return pause


def _fault(call: CallRequested, pause: PauseReply, data: bytes) -> str | None:
    if is_too_deep([pause.payload, pause.state, pause.default_answer], data):
        return "it is nested too deep"
    if pause.reason == "budget":
        return "only a run waits for a budget"
    if pause.number != len(call.answers):
        return f"its number is {pause.number}, and the call has had {len(call.answers)} answers"
    if (size := wire_size([answer.model_dump() for answer in call.answers])) > _MAX_ANSWERS_BYTES:
        return f"the answers so far have {size:,} bytes, and no call with more than {_MAX_ANSWERS_BYTES:,} may pause"
    if (size := wire_size(pause.state)) > MAX_STATE_BYTES:
        return f"`state` has {size:,} bytes, and at most {MAX_STATE_BYTES:,} are kept between rounds"
    if pause.input_schema is not None:
        try:
            check_schema(pause.input_schema)
            found = complaints(pause.default_answer, pause.input_schema) if pause.default == "answer" else []
        except InvalidSchema as error:
            return f"`input_schema` cannot be used: {error}"
        if found:
            return f"`default_answer` does not fit `input_schema`: {'; '.join(found)}"
    return None


def paused(call: CallRequested, pause: PauseReply, payload: Any) -> bytes:
    """Return the encoded CallPaused; `payload`: that of the pause, or a reference. Raises InvalidPause."""
    changed = {
        "payload": payload,
        "expires_in_s": min(pause.expires_in_s or DEFAULT_PAUSE_S, MAX_PAUSE_S),
        "default_answer": pause.default_answer if pause.default == "answer" else None,
    }
    message = CallPaused(call_id=call.call_id, tool=call.tool, round=call.round, **{**dict(pause), **changed})
    body = message.model_dump_json().encode()
    if len(body) > MAX_OUTCOME_BYTES:
        most = f"at most {MAX_OUTCOME_BYTES} can be kept"
        raise InvalidPause(f"the pause of {call.tool} takes {len(body)} bytes, and {most}: make its schema smaller")
    return body


_LARGE_RESULT_BYTES = 256 * 1024
"""Above this, one result is processed at a time."""


class RoundEnd(NamedTuple):
    """How a round of a call has ended: the encoded CallFinished, or CallPaused if `is_pause`."""

    body: bytes
    is_pause: bool = False


class OutcomeBuilder:
    """Builds outcomes from tool results."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._annotations = AnnotationCache()
        self._large_results = asyncio.Lock()

    async def build(
        self,
        call: CallRequested,
        spec: ToolSpec,
        result: ResultBody,
        progress: CallProgress,
        store: CallArtifacts,
        began: float,
    ) -> bytes:
        """Return the encoded outcome of a tool's result; `began`: when the call began, by the monotonic clock.

        Waits for the artifact store, up to the patience or the run's deadline. Raises CallFailed, and RunEnded when the
        run ends meanwhile.
        """
        until = time.monotonic() + self._patience_s
        async with self._large_results if result.size > _LARGE_RESULT_BYTES else nullcontext():
            annotations = self._annotations.of(call.spec, spec)

            def separated() -> tuple[Any, SeparatedResult, NamedArtifact]:
                value = read_result(call, spec, result)
                return value, *take_out(call, spec, value, separate(value, annotations, streamed=progress.streamed))

            value, parts, named = await in_thread_if_large(result.size, separated)
            # Streams that no field of the result holds: each is an artifact by itself.
            finished = progress.finished
            unclaimed = {dotted((name,)): finished[name] for name in parts.unclaimed if name in finished}
            streams = {path: each for path, each in unclaimed.items() if path not in parts.artifacts}
            assembled = await store.assemble(streams, until)
            artifacts = {**parts.artifacts, **assembled}
            gone = [each.stream_id for path, each in streams.items() if path not in assembled]
            names = parts.claimed | {path: each.stream_id for path, each in streams.items()}
            streamed = {path: progress.types[name] for path, name in names.items() if name in progress.types}
            clean = await store.clean(artifacts, streamed, until)
            named = named.cleaned(artifacts, clean.artifacts)
            if clean.changed:
                # The stored result says no more of an image than the artifact does.
                shown = {
                    path: plain(each) if isinstance(each, bytes) else each for path, each in clean.artifacts.items()
                }
                value = restore(parts.observation, shown)

            def describe(path: str) -> Description:
                kind, key = (named.artifact_type, named.key) if path == named.path else (None, None)
                shown = kind or streamed.get(path)
                skill = Description(skill_id=named.skill_id, skill_name=named.skill_name)
                return {"artifact_type": shown, "own_id": key, **skill}

            kept = await store.store(clean.artifacts, describe, parts.observation, value, until)
            dropped = progress.warnings(parts.unclaimed, gone)
            warnings = [*clean.warnings, *dropped, *named.warnings, *kept.warnings]
            content = result.content
            if content is not None and content.is_cut:
                most = f"at most {MAX_INLINE_BYTES} bytes of it are kept"
                warnings.append(f"content_cut: the content of {call.tool} is cut, since {most}")
            responded = named.responded(kept.named_ref)
            text = content.text if content is not None else None
            types = {path: known for path in kept.artifacts if (known := describe(path).get("artifact_type"))}
            return succeeded(call, kept, parts.sources, warnings, elapsed_ms(began), text, responded, types)

    async def read(self, call: CallRequested, spec: ToolSpec, result: ResultBody, began: float) -> bytes:
        """Return the encoded outcome of a read: the result as a model is shown it, without artifacts.

        Nothing is stored. Raises InvalidResult and ResultTooLarge.
        """

        def shown() -> SeparatedResult:
            value = read_result(call, spec, result)
            return take_out(call, spec, value, separate(value, self._annotations.of(call.spec, spec)))[0]

        parts = await in_thread_if_large(result.size, shown)
        kept = StoredResult(parts.observation, {})
        return succeeded(call, kept, parts.sources, [], elapsed_ms(began), limit=MAX_READ_BYTES)


def succeeded(
    call: CallRequested,
    kept: StoredResult,
    sources: list[Source],
    warnings: list[str],
    latency_ms: int,
    content: str | None = None,
    responded: RespondedArtifact | None = None,
    types: dict[str, str] | None = None,
    limit: int = MAX_OUTCOME_BYTES,
) -> bytes:
    """Return the encoded outcome of a successful call. Raises ResultTooLarge or InvalidResult."""
    try:
        finished = CallFinished(
            call_id=call.call_id,
            tool=call.tool,
            status="succeeded",
            observation=kept.observation,
            artifacts=kept.artifacts,
            artifact_types=types or {},
            sources=sources,
            warnings=warnings,
            latency_ms=latency_ms,
            content=content,
            responded=responded,
        )
        body = finished.model_dump_json().encode()
    except (ValueError, RecursionError) as error:
        raise InvalidResult(f"what {call.tool} answered cannot be passed on: {type(error).__name__}") from error
    if len(body) > limit:
        raise ResultTooLarge(
            f"the result of {call.tool} takes {len(body)} bytes, and at most {limit} can be kept;"
            " ask for less, or for a part of it"
        )
    return body


def failed(call_id: str, tool: str, fault: Fault, latency_ms: int = 0, warnings: Sequence[str] = ()) -> bytes:
    """Return the encoded outcome of a failed call."""
    finished = CallFinished(
        call_id=call_id, tool=tool, status="failed", failure=fault, latency_ms=latency_ms, warnings=list(warnings)
    )
    return finished.model_dump_json().encode()


def elapsed_ms(began: float) -> int:
    """Return the milliseconds since a moment of `time.monotonic`."""
    return round((time.monotonic() - began) * 1000)
