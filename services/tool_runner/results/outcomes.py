"""Build the outcome of a call: parse its result, check it, and separate what the model sees from what people see.

Rule 1: each result of a tool leads to exactly one CallFinished that fits into the inbox.
Rule 2: large results are processed one at a time, in a thread, so that memory and other calls are not affected.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from contracts.runs.inbox import CallFinished
from contracts.runs.payload import Source
from contracts.tools.messages import CallRequested, RespondedArtifact, ToolSpec
from contracts.wire.faults import Fault
from contracts.wire.limits import MAX_INLINE_BYTES, MAX_OUTCOME_BYTES, MAX_READ_BYTES
from services.shared.redaction.annotations import AnnotationCache
from services.shared.redaction.json_values import plain
from services.shared.redaction.separation import SeparatedResult, dotted, restore, separate
from services.tool_runner.artifacts.store import CallArtifacts, StoredResult
from services.tool_runner.artifacts.store_access import Description
from services.tool_runner.calls.progress import CallProgress
from services.tool_runner.errors import InvalidResult, ResultTooLarge
from services.tool_runner.results.forms import NamedArtifact, take_out
from services.tool_runner.transports.driver import ResultBody

from .reading import in_thread_if_large, read_result

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
        artifacts: CallArtifacts,
        began: float,
    ) -> bytes:
        """Return the encoded outcome of a tool's result; `began`: when the call began, by the monotonic clock.

        Waits for the artifact store, up to the patience or the run's deadline. Raises CallFailed, and RunEnded when the
        run ends meanwhile.
        """
        until = time.monotonic() + self._patience_s
        try:
            async with self._large_results if result.size > _LARGE_RESULT_BYTES else nullcontext():
                return await self._build(call, spec, result, progress, artifacts, began, until)
        finally:
            result.close()

    async def read(self, call: CallRequested, spec: ToolSpec, result: ResultBody, began: float) -> bytes:
        """Return the encoded outcome of a read: the result as a model is shown it, without artifacts.

        Nothing is stored. Raises InvalidResult and ResultTooLarge.
        """

        def shown() -> SeparatedResult:
            value = read_result(call, spec, result)
            return take_out(call, spec, value, separate(value, self._annotations.of(call.spec, spec)))[0]

        try:
            parts = await in_thread_if_large(result.size, shown)
        finally:
            result.close()
        kept = StoredResult(parts.observation, {})
        return succeeded(call, kept, parts.sources, [], elapsed_ms(began), limit=MAX_READ_BYTES)

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
            shown = {path: plain(each) if isinstance(each, bytes) else each for path, each in clean.artifacts.items()}
            value = restore(parts.observation, shown)

        def describe(path: str) -> Description:
            kind, key = (named.artifact_type, named.key) if path == named.path else (None, None)
            return Description(kind or streamed.get(path), key, named.skill_id, named.skill_name)

        kept = await store.store(clean.artifacts, describe, parts.observation, value, until)
        dropped = progress.warnings(parts.unclaimed, gone)
        warnings = [*clean.warnings, *dropped, *named.warnings, *kept.warnings]
        content = result.content
        if content is not None and content.is_cut:
            most = f"at most {MAX_INLINE_BYTES} bytes of it are kept"
            warnings.append(f"content_cut: the content of {call.tool} is cut, since {most}")
        responded = named.responded(kept.named_ref)
        text = content.text if content is not None else None
        types = {path: known for path in kept.artifacts if (known := describe(path).artifact_type)}
        return succeeded(call, kept, parts.sources, warnings, elapsed_ms(began), text, responded, types)


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
