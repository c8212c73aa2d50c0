"""Store the artifacts of a call's result (docs/artifacts.md#where-the-bytes-are).

Rule 1: values above 32 KiB, and the largest of those that exceed 128 KiB together, are stored and replaced by
references.
Rule 2: an artifact id is derived from the call, the path and the bytes (for a stream, the number of pieces), so a
repeated handling finds what the first one stored.
Rule 3: an unavailable store is retried up to the call's patience; then the call fails. The rest of the run does not
wait.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson
import structlog

from contracts import subjects
from contracts.artifacts import ArtifactRef
from contracts.events import ArtifactStored
from contracts.limits import MAX_ARTIFACT_BYTES, MAX_INLINE_BYTES
from contracts.records import EVENTS_HEADER, Record
from contracts.tools import CallRequested
from services.messaging.errors import Refused
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.builtin_tools import OBSERVATION
from services.shared.redaction import (
    dotted,
    heavy_paths,
    plain,
    shortened,
    stored_size,
    to_blob,
    wire_size,
)
from services.tool_runner.artifacts.images import Cleaned, ToolImages
from services.tool_runner.calls.progress import STREAM_TTL_S, FinishedStream
from services.tool_runner.errors import ArtifactStoreFailed, InvalidResult, ResultTooLarge
from services.tool_runner.settings import ToolRunnerSettings

from .store_access import StoreAccess

T = TypeVar("T")
logger = structlog.get_logger(__name__)

RESULT = dotted(())
PAYLOAD = "payload"
"""Where the payload of a pause is stored, among the artifacts of its call."""
_MAX_REFERENCES = 1000
"""References in one outcome."""
_MAX_INLINE_ENCODE_BYTES = 256 * 1024
"""Smaller values are encoded without a thread."""
_BYTES_PATIENCE_S = 2.0
"""Seconds to wait for the store before bytes stay in the message."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result that fits into a message: its large values are references."""

    observation: Any
    artifacts: dict[str, Any]


class TypedValue(NamedTuple):
    """A value and its artifact type, for clients that display it."""

    value: Any
    artifact_type: str | None


class CallArtifacts:
    """The artifacts of one call's result. `until`: how long an unavailable store is retried, monotonic time."""

    def __init__(self, access: StoreAccess, limits: ToolRunnerSettings, images: ToolImages) -> None:
        self._access = access
        self._call = access.call
        self._limits = limits
        self._images = images

    async def clean(self, artifacts: Mapping[str, Any], types: Mapping[str, str], until: float) -> Cleaned:
        """Return the artifacts with cleaned images, for values and references alike. Raises what `store` raises."""
        client, call = self._access.client(until), self._call

        async def put(path: str, data: bytes) -> ArtifactRef:
            return await _store(client, call, path, TypedValue(data, types.get(path)))

        cleaning = self._images.clean(call.tool, call.tenant, artifacts, client, put)
        return await self._or_call_failed(self._access.unless_ended(cleaning))

    async def store(
        self, artifacts: Mapping[str, Any], types: Mapping[str, str], observation: Any, value: Any, until: float
    ) -> StoredResult:
        """Store the large values of a result, and return what travels in the message.

        `artifacts`: values, and references stored before.

        `types`: artifact types by path, as the streams declared them; `value`: the complete result.

        Raises ResultTooLarge, InvalidResult, ArtifactStoreFailed when the store is unavailable `until` then, RunEnded.
        """
        refs = {path: each for path, each in artifacts.items() if isinstance(each, ArtifactRef)}
        values_by_path = {path: each for path, each in artifacts.items() if path not in refs}
        is_large = wire_size(observation) > self._limits.observation_max_bytes
        if is_large:
            # The complete result for tools and people; and the observation for the model, if it differs.
            values_by_path |= {RESULT: value} if observation is value else {RESULT: value, OBSERVATION: observation}
        large = heavy_paths(values_by_path) | {path for path, each in values_by_path.items() if _is_deep(each)}
        large |= values_by_path.keys() & {RESULT, OBSERVATION} if is_large else set()
        _check(self._call.tool, values_by_path, large, len(refs))
        values = {path: TypedValue(each, types.get(path)) for path, each in values_by_path.items()}
        if large:
            refs |= await self._store_each({path: values[path] for path in large}, until)
        refs |= await self._store_bytes({path: each for path, each in values.items() if path not in large}, until)
        if refs:
            await self._announce(refs)
        # In the order of the result, followed by the result itself.
        kept = {
            path: _as_json(refs[path]) if path in refs else _inline(values_by_path[path])
            for path in {**artifacts, **values_by_path}
        }
        if is_large:
            observation = shortened(
                observation, refs.get(OBSERVATION, refs[RESULT]), self._limits.observation_shown_characters
            )
        return StoredResult(observation, kept)

    async def store_payload(self, payload: Any, until: float) -> Any:
        """Return the payload of a pause, or a reference above 32 KiB. Raises what `store` raises."""
        if wire_size(payload) <= MAX_INLINE_BYTES and not _is_deep(payload):
            return payload
        _check(self._call.tool, {PAYLOAD: payload}, frozenset({PAYLOAD}), 0)
        return _as_json((await self._store_each({PAYLOAD: TypedValue(payload, None)}, until))[PAYLOAD])

    async def _store_bytes(self, values: Mapping[str, TypedValue], until: float) -> dict[str, ArtifactRef]:
        """Store values that are bytes, whatever their size, since a reference has their type.

        Without a store they stay inline.
        """
        found = {path: each for path, each in values.items() if isinstance(each.value, bytes)}
        if not found:
            return {}
        try:
            return await self._store_each(found, min(until, time.monotonic() + _BYTES_PATIENCE_S))
        except ArtifactStoreFailed as failure:
            logger.info("bytes_kept_inline", reason=str(failure))
            return {}

    async def _store_each(self, values: Mapping[str, TypedValue], until: float) -> dict[str, ArtifactRef]:
        return await self._or_call_failed(self._access.for_each(values, _store, until))

    async def assemble(self, streams: Mapping[str, FinishedStream], until: float) -> dict[str, Any]:
        """Return the values of finished streams by path, or references where they are large.

        A stream whose pieces have expired is left out. Raises what `store` raises.
        """
        if not streams:
            return {}
        found = await self._or_call_failed(self._access.for_each(streams, _assembled, until))
        return {path: each for path, each in found.items() if each is not None}

    async def _or_call_failed(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises CallFailed where it fails."""
        try:
            return await work
        except (ArtifactFailed, ValueError, RecursionError) as error:
            raise _failure(self._call.tool, error) from error

    async def _announce(self, refs: Mapping[str, ArtifactRef]) -> None:
        """Publish the stored artifacts to the run's listeners."""
        call = self._call
        stored = [
            ArtifactStored(
                artifact_id=ref.artifact_id,
                mime_type=ref.mime_type,
                size=ref.size,
                tool=call.tool,
                call_id=call.call_id,
                field=path,
                artifact_type=ref.artifact_type,
            )
            for path, ref in refs.items()
        ]
        record = Record(events=list(stored))
        headers = {EVENTS_HEADER: record.types(), "Nats-TTL": str(STREAM_TTL_S)}
        try:
            subject, data = subjects.stream(call.tenant, call.run_id), record.model_dump_json().encode()
            await self._access.bus.publish_surely(subject, data, f"{call.run_id}.{call.call_id}.stored", headers)
        except Refused as error:
            logger.warning("artifacts_not_shown", reason=str(error))


async def _store(client: ArtifactClient, call: CallRequested, path: str, typed: TypedValue) -> ArtifactRef:
    value = typed.value
    is_small = isinstance(value, bytes) or wire_size(value) <= _MAX_INLINE_ENCODE_BYTES
    blob = to_blob(value) if is_small else await asyncio.to_thread(to_blob, value)
    digest = await asyncio.to_thread(hashlib.sha256, blob.body)
    return await client.put(
        call.tenant,
        blob.body,
        session=call.session_id,
        run=call.run_id,
        namespace=call.tool,
        mime_type=blob.mime_type,
        json_type=blob.json_type,
        items=blob.items,
        artifact_type=typed.artifact_type,
        artifact_id=_id_of(call, path, digest.hexdigest()),
    )


async def _assembled(client: ArtifactClient, call: CallRequested, path: str, stream: FinishedStream) -> Any:
    """Return a stream's value, its reference, or None when pieces of it are gone. Raises ArtifactFailed."""
    try:
        return await client.assemble(
            call.tenant,
            call.run_id,
            call.call_id,
            stream.stream_id,
            pieces=stream.pieces,
            since=stream.since,
            artifact_id=_id_of(call, path, f"{stream.pieces} pieces"),
            session=call.session_id,
            namespace=call.tool,
        )
    except ArtifactNotFound as error:
        logger.warning("artifact_stream_lost", stream_id=stream.stream_id, reason=error.reason)
        return None


def _id_of(call: CallRequested, path: str, content: str) -> str:
    place = f"{call.tenant}\n{call.run_id}\n{call.call_id}\n{path}\n{content}"
    return hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]


def _check(tool: str, values: Mapping[str, Any], large: frozenset[str], stored: int) -> None:
    for path in large:
        if (size := stored_size(values[path])) > MAX_ARTIFACT_BYTES:
            what = "the result" if path == RESULT else f"`{path}` in the result"
            most = f"at most {MAX_ARTIFACT_BYTES} can be kept"
            raise ResultTooLarge(f"{what} of {tool} has {size} bytes, and {most}; ask for less, or for a part of it")
    if (count := len(large) + stored) > _MAX_REFERENCES:
        most = f"at most {_MAX_REFERENCES} can be stored"
        raise ResultTooLarge(f"the result of {tool} holds {count} large values, and {most}; ask for fewer")


def _failure(tool: str, error: Exception) -> Exception:
    """Return the error for the model: the tool did its work, and its result is lost."""
    if isinstance(error, ArtifactTooLarge):
        return ResultTooLarge(f"the result of {tool} is too large to be stored: {error.reason}")
    if isinstance(error, StorageUnavailable):
        return ArtifactStoreFailed(
            f"{tool} has done its work, but its result is too large for a message and could not be stored", error
        )
    if isinstance(error, ArtifactFailed):
        return ArtifactStoreFailed(
            f"{tool} has done its work, but its result could not be stored: {error.reason}", error
        )
    return InvalidResult(f"what {tool} answered cannot be stored: {type(error).__name__}")


def _inline(value: Any) -> Any:
    """Return a value as it travels in a message: bytes as base64."""
    return plain(value) if isinstance(value, bytes) else value


def _is_deep(value: Any) -> bool:
    """Whether the value is nested deeper than readers in some languages accept."""
    return isinstance(value, dict | list) and plain(value) != value


def _as_json(ref: ArtifactRef) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(ref.model_dump_json(exclude_none=True))
    return found
