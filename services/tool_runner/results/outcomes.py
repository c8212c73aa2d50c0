"""Build the outcome of a call: parse its result, check it, and separate what the model sees from what people see.

Rule 1: each result of a tool leads to exactly one CallFinished that fits into the inbox.
Rule 2: large results are processed one at a time, in a thread, so that memory and other calls are not affected.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import structlog

from contracts.runs.inbox import CallFinished
from contracts.runs.payload import Source
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.tools.responses import RespondedArtifact
from contracts.wire.faults import Fault
from contracts.wire.limits import MAX_INLINE_BYTES, MAX_OUTCOME_BYTES
from services.runtime import exact_json
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.redaction.annotations import AnnotationCache, Annotations
from services.shared.redaction.json_values import plain
from services.shared.redaction.separation import SeparatedResult, dotted, restore, separate
from services.shared.redaction.stored_values import holds_reference
from services.shared.tools.approvals import is_allowed
from services.tool_runner.artifacts.store import CallArtifacts, StoredResult
from services.tool_runner.calls.progress import CallProgress, FinishedStream
from services.tool_runner.errors import ApprovalMissing, InvalidArguments, InvalidResult, ResultTooLarge
from services.tool_runner.results.body import ResultBody
from services.tool_runner.results.named_artifact import PATH as OWN
from services.tool_runner.results.named_artifact import OwnArtifact, take_out

logger = structlog.get_logger(__name__)
T = TypeVar("T")

_MAX_INLINE_WORK_BYTES = 256 * 1024
"""Smaller results are processed without a thread."""
_MAX_DEPTH = 100


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
        artifacts: CallArtifacts,
        began: float,
    ) -> bytes:
        """Return the encoded outcome of a tool's result; `began`: when the call began, by the monotonic clock.

        Waits for the artifact store, up to the patience or the run's deadline. Raises CallFailed, and RunEnded when the
        run ends meanwhile.
        """
        until = time.monotonic() + self._patience_s
        try:
            async with self._large_results if result.size > _MAX_INLINE_WORK_BYTES else nullcontext():
                return await self._build(call, spec, result, progress, artifacts, began, until)
        finally:
            result.close()

    async def _build(
        self,
        call: CallRequested,
        spec: ToolSpec,
        result: ResultBody,
        progress: CallProgress,
        store: CallArtifacts,
        began: float,
        until: float,
    ) -> bytes:
        annotations = self._annotations.of(call.spec, spec)
        value, parts, own = await in_thread_if_large(
            result.size, lambda: _separated(call, spec, annotations, result, progress.streamed)
        )
        streams = _streams(parts, progress)
        assembled = await store.assemble(streams, until)
        artifacts = {**parts.artifacts, **assembled}
        dropped = progress.warnings(
            parts.unclaimed, [shown.stream_id for path, shown in streams.items() if path not in assembled]
        )
        names = parts.claimed | {path: shown.stream_id for path, shown in streams.items()}
        types = {path: progress.types[name] for path, name in names.items() if name in progress.types}
        clean = await store.clean(artifacts, types, until)
        own = _after_cleaning(own, artifacts, clean.artifacts)
        if clean.changed:
            # The stored result says no more of an image than the artifact does.
            shown = {path: plain(each) if isinstance(each, bytes) else each for path, each in clean.artifacts.items()}
            value = restore(parts.observation, shown)
        kept = await store.store(clean.artifacts, types, parts.observation, value, until, own)
        of_artifact = [*own.warnings, *kept.warnings] if own is not None else []
        warnings = [*clean.warnings, *dropped, *of_artifact, *_about_content(call, result)]
        content = result.content.text if result.content is not None else None
        responded = own.responded(kept.own_ref) if own is not None else None
        return succeeded(call, kept, parts.sources, warnings, elapsed_ms(began), content, responded)


def _separated(
    call: CallRequested, spec: ToolSpec, annotations: Annotations, result: ResultBody, streamed: list[str]
) -> tuple[Any, SeparatedResult, OwnArtifact | None]:
    value = read_result(call, spec, result)
    return value, *take_out(call, spec, value, separate(value, annotations, streamed=streamed))


def _streams(parts: SeparatedResult, progress: CallProgress) -> dict[str, FinishedStream]:
    """Return the streams that no field of the result holds, by their paths: each is an artifact by itself."""
    finished = progress.finished
    streams = {dotted((name,)): finished[name] for name in parts.unclaimed if name in finished}
    return {path: each for path, each in streams.items() if path not in parts.artifacts}


def _after_cleaning(
    own: OwnArtifact | None, artifacts: Mapping[str, Any], cleaned: Mapping[str, Any]
) -> OwnArtifact | None:
    """Return the artifact with its own id as its cleaned image is; None if the image was dropped."""
    if own is None or OWN not in cleaned:
        return None
    return own if cleaned[OWN] is artifacts[OWN] else own.cleaned(cleaned[OWN])


def _about_content(call: CallRequested, result: ResultBody) -> list[str]:
    if result.content is None or not result.content.is_cut:
        return []
    return [f"content_cut: the content of {call.tool} is cut, since at most {MAX_INLINE_BYTES} bytes of it are kept"]


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run work whose duration depends on a number of bytes: in a thread if there are many."""
    return work() if size <= _MAX_INLINE_WORK_BYTES else await asyncio.to_thread(work)


def check_approval(call: CallRequested, specs: Iterable[ToolSpec]) -> None:
    """Raise ApprovalMissing if one of the specifications, or a rule of the run, asks for an approval that is not there.

    The planner sends no such call: this is the second check, by another process.
    """
    try:
        allowed = all(is_allowed(call, spec) for spec in specs)
    except (ValueError, RecursionError):  # The arguments have no canonical JSON, so no approval can be theirs.
        allowed = False
    if not allowed:
        raise ApprovalMissing(call.tool)


def check_arguments(call: CallRequested, args: dict[str, Any], spec: ToolSpec) -> None:
    """Raise InvalidArguments if the arguments do not fit the input schema.

    Values that come from earlier results are not quoted: the model may not be allowed to read them.
    """
    try:
        found = complaints(args, spec.input_schema, masked=call.resolved or holds_reference(call.args))
    except InvalidSchema as error:
        raise InvalidArguments(f"the input schema of {call.tool} cannot be used: {error}") from error
    except (TypeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are nested too deep: {error}") from error
    if found:
        raise InvalidArguments(f"the arguments do not fit the inputSchema of {call.tool}: {'; '.join(found)}")


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


def succeeded(
    call: CallRequested,
    kept: StoredResult,
    sources: list[Source],
    warnings: list[str],
    latency_ms: int,
    content: str | None = None,
    responded: RespondedArtifact | None = None,
) -> bytes:
    """Return the encoded outcome of a successful call. Raises ResultTooLarge or InvalidResult."""
    try:
        finished = CallFinished(
            call_id=call.call_id,
            tool=call.tool,
            status="succeeded",
            observation=kept.observation,
            artifacts=kept.artifacts,
            sources=sources,
            warnings=warnings,
            latency_ms=latency_ms,
            content=content,
            responded=responded,
        )
        body = finished.model_dump_json().encode()
    except (ValueError, RecursionError) as error:
        raise InvalidResult(f"what {call.tool} answered cannot be passed on: {type(error).__name__}") from error
    if len(body) > MAX_OUTCOME_BYTES:
        raise ResultTooLarge(
            f"the result of {call.tool} takes {len(body)} bytes, and at most {MAX_OUTCOME_BYTES} can be kept;"
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


def is_too_deep(value: Any, body: bytes) -> bool:
    """Return whether a value is nested deeper than messages may be. `body`: the JSON that it was parsed from."""
    if body.count(b"[") + body.count(b"{") <= _MAX_DEPTH:
        return False
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
