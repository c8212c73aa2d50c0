"""Store the artifacts of a call's result (docs/artifacts.md#where-the-bytes-are), images with nothing but their pixels.

Rule 1: values above 32 KiB, and the largest of those that exceed 128 KiB together, are stored and replaced by
references.
Rule 2: an artifact id is derived from the call, the path and the bytes (for a stream, the number of pieces), so a
repeated handling finds what the first one stored.
Rule 3: an unavailable store is retried up to the call's patience; then the call fails. The rest of the run does not
wait.
Rule 4: what is stored of a result bears the skill that the result names.
Rule 5: bytes, and an artifact with a key, are stored whatever their size. While the store is unavailable,
small ones stay in the message.
Rule 6: data that a tool wrote in the form of a reference is stored too, with what surrounds it. So everything of that
form among an outcome's artifacts was stored here, and whoever follows it comes to the tool's data.
Rule 7: an image artifact (bytes, base64 text, or an assembled stream) leaves the tool runner cleaned as the gateway
cleans those of users, or is dropped. A warning of the run names what was dropped; the call succeeds. Images inside a
larger JSON value are not changed: no reader treats them as images.
"""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

import structlog

from contracts.artifacts import ArtifactRef, ImageType, image_in, image_type
from contracts.runs.events import ArtifactStored
from contracts.tools.messages import CallRequested
from contracts.wire import subjects
from contracts.wire.base import MAX_ARTIFACT_BYTES, MAX_INLINE_BYTES
from contracts.wire.records import EVENTS_HEADER, EXPIRES, Record
from services.messaging.errors import Refused
from services.shared.artifacts.client import ArtifactClient, Description
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.images.cleaner import CleaningFailed, ImageCleaner, ImageRefused, too_heavy
from services.shared.redaction.json_values import plain, stored_size, wire_size
from services.shared.redaction.separation import dotted
from services.shared.redaction.stored_values import heavy_paths, holds_reference, shortened
from services.shared.tools.builtin import OBSERVATION
from services.tool_runner.artifacts.access import StoreAccess, assembled, store_value
from services.tool_runner.calls.progress import FinishedStream
from services.tool_runner.errors import ArtifactStoreFailed, InvalidResult, ResultTooLarge
from services.tool_runner.settings import ToolRunnerSettings

logger = structlog.get_logger(__name__)

_TYPES = frozenset(get_args(ImageType))
T = TypeVar("T")
RESULT = dotted(())
PAYLOAD = "payload"
"""Where the payload of a pause is stored, among the artifacts of its call."""
_MAX_REFERENCES = 1000
"""References in one outcome."""
_SMALL_PATIENCE_S = 2.0
"""Seconds to wait for the store before a value stays in the message that is small enough for it."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Artifacts whose images contain nothing but pixels."""

    artifacts: dict[str, Any]
    warnings: list[str]
    changed: bool


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result that fits into a message: its large values are references.

    `named_ref`: of the artifact with a key, None while the store is unavailable. `warnings`: for the outcome.
    """

    observation: Any
    artifacts: dict[str, Any]
    named_ref: ArtifactRef | None = None
    warnings: list[str] = field(default_factory=list)


class CallArtifacts:
    """The artifacts of one call's result. `until`: how long an unavailable store is retried, monotonic time."""

    def __init__(self, access: StoreAccess, limits: ToolRunnerSettings, cleaner: ImageCleaner) -> None:
        self._access = access
        self._call = access.call
        self._limits = limits
        self._cleaner = cleaner
        self._warnings: list[str] = []

    async def clean(self, artifacts: Mapping[str, Any], types: Mapping[str, str], until: float) -> Cleaned:
        """Return the artifacts with cleaned images, for values and references alike. Raises what `store` raises."""
        if not artifacts:
            return Cleaned({}, [], changed=False)
        client, tool = self._access.client(until), self._call.tool
        warnings: dict[str, str] = {}

        async def one(path: str, value: Any) -> Any:
            try:
                return await self._cleaned(path, value, types.get(path), client)
            except ImageRefused as refusal:
                warnings[path] = f"image_dropped: {path} of {tool}: {refusal.reason}"
                logger.info("image_refused", reason=refusal.reason)
            except CleaningFailed as failure:
                warnings[path] = f"image_dropped: {path} of {tool}: {failure}"
            return None

        cleaning = asyncio.gather(*(one(path, value) for path, value in artifacts.items()))
        cleaned = await self._or_call_failed(self._access.watch.unless_ended(cleaning))
        found = dict(zip(artifacts, cleaned, strict=True))
        kept = {path: value for path, value in found.items() if path not in warnings}
        changed = any(found[path] is not value for path, value in artifacts.items())
        return Cleaned(kept, [warnings[path] for path in artifacts if path in warnings], changed)

    async def _cleaned(self, path: str, value: Any, kind: str | None, client: ArtifactClient) -> Any:
        """Return the cleaned value, or the value itself if it is not an image. `kind`: the artifact's type.

        Raises ImageRefused, CleaningFailed, ArtifactFailed.
        """
        match value:
            case bytes():
                return await self._clean_bytes(value)
            case str():
                is_long = len(value) > self._limits.max_image_bytes
                data = await asyncio.to_thread(image_in, value) if is_long else image_in(value)
                return base64.b64encode(await self._clean_bytes(data)).decode() if data else value
            case ArtifactRef(mime_type=mime_type) if mime_type in _TYPES:
                return await self._clean_stored(path, value, kind, client)
        return value

    async def _clean_stored(self, path: str, ref: ArtifactRef, kind: str | None, client: ArtifactClient) -> ArtifactRef:
        """Replace a stored image by its pixels. One that is dropped or replaced is deleted."""
        limit = self._limits.max_image_bytes
        if ref.size > limit:
            await self._delete(ref, client)
            raise ImageRefused(too_heavy(ref.size, limit), too_large=True)
        try:
            _, data = await client.read(self._call.tenant, ref.artifact_id, limit=limit)
            described = Description(artifact_type=kind)
            kept = await store_value(client, self._call, path, await self._clean_bytes(data), described)
        except ImageRefused:
            await self._delete(ref, client)
            raise
        if kept.artifact_id != ref.artifact_id:
            await self._delete(ref, client)
        return kept

    async def _delete(self, ref: ArtifactRef, client: ArtifactClient) -> None:
        with suppress(ArtifactNotFound):  # An earlier handling of this call deleted it.
            await client.delete(self._call.tenant, ref.artifact_id)

    async def _clean_bytes(self, data: bytes) -> bytes:
        """Clean an image; a few at once for all calls together. Other bytes stay as they are."""
        if (kind := image_type(data)) is None:
            return data
        async with self._cleaner.slots:
            return await self._cleaner.clean(data, kind)

    async def store(
        self,
        artifacts: Mapping[str, Any],
        describe: Callable[[str], Description],
        observation: Any,
        value: Any,
        until: float,
    ) -> StoredResult:
        """Store the large values of a result, and return what travels in the message.

        `artifacts`: values, and references stored before. `describe` says of the value at a path what its reference
        tells. `value`: the complete result.

        Raises ResultTooLarge, InvalidResult, ArtifactStoreFailed when the store is unavailable `until` then, RunEnded.
        """
        refs = {path: each for path, each in artifacts.items() if isinstance(each, ArtifactRef)}
        values = {path: each for path, each in artifacts.items() if path not in refs}
        is_large = wire_size(observation) > self._limits.observation_max_bytes
        whole: dict[str, Any] = {}
        """The complete result for tools and people; and the observation for the model, if it differs."""
        if is_large:
            whole = {RESULT: value} if observation is value else {RESULT: value, OBSERVATION: observation}
        elif holds_reference(observation):
            whole = {RESULT: value}
        values |= whole
        large = heavy_paths(values) | whole.keys()
        large |= {path for path in values.keys() - large if _is_deep(values[path]) or holds_reference(values[path])}
        _check(self._call.tool, values, large, len(refs))
        named = next((path for path in values if describe(path).get("own_id") is not None), None)
        refs |= await self._store_each({path: values[path] for path in large}, describe, until) if large else {}
        # Bytes are stored since a reference has their type, and the artifact with a key since the key finds it.
        small = {path: each for path, each in values.items() if path not in large}
        small = {path: each for path, each in small.items() if isinstance(each, bytes) or path == named}
        if small:
            try:
                refs |= await self._store_each(small, describe, min(until, time.monotonic() + _SMALL_PATIENCE_S))
            except ArtifactStoreFailed as failure:
                logger.info("artifacts_kept_inline", reason=str(failure))
        await self._announce(refs)
        named_ref = refs.get(named) if named is not None else None
        if named is not None and named not in large and not isinstance(values[named], bytes):
            refs.pop(named, None)  # It is small enough for the message, too.
        # In the order of the result, followed by the result itself.
        kept = {
            path: _as_json(refs[path])
            if path in refs
            else plain(values[path])
            if isinstance(values[path], bytes)
            else values[path]
            for path in {**artifacts, **values}
        }
        if is_large:
            observation = shortened(
                observation, refs.get(OBSERVATION, refs[RESULT]), self._limits.observation_shown_characters
            )
        return StoredResult(observation, kept, named_ref, self._warnings)

    async def store_payload(self, payload: Any, until: float) -> Any:
        """Return the payload of a pause, or a reference above 32 KiB. Raises what `store` raises."""
        if wire_size(payload) <= MAX_INLINE_BYTES and not _is_deep(payload):
            return payload
        _check(self._call.tool, {PAYLOAD: payload}, frozenset({PAYLOAD}), 0)
        return _as_json((await self._store_each({PAYLOAD: payload}, lambda _: Description(), until))[PAYLOAD])

    async def _store_each(
        self, values: Mapping[str, Any], describe: Callable[[str], Description], until: float
    ) -> dict[str, ArtifactRef]:
        async def store(client: ArtifactClient, call: CallRequested, path: str, value: Any) -> ArtifactRef:
            description = describe(path)

            def warn(_: str) -> None:
                """Note what the store warns of: the tool has given the key to another artifact before."""
                if (key := description.get("own_id")) is not None:
                    shown = key if key.isprintable() else json.dumps(key)
                    self._warnings.append(f"{call.tool} gave the artifact id {shown} again: the newest one counts")

            return await store_value(client, call, path, value, description, warn)

        return await self._or_call_failed(self._access.for_each(values, store, until))

    async def assemble(self, streams: Mapping[str, FinishedStream], until: float) -> dict[str, Any]:
        """Return the values of finished streams by path, or references where they are large.

        A stream whose pieces have expired is left out. Raises what `store` raises.
        """
        if not streams:
            return {}
        found = await self._or_call_failed(self._access.for_each(streams, assembled, until))
        return {path: each for path, each in found.items() if each is not None}

    async def _or_call_failed(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises CallFailed where it fails."""
        try:
            return await work
        except (ArtifactFailed, ValueError, RecursionError) as error:
            raise _failure(self._call.tool, error) from error

    async def _announce(self, refs: Mapping[str, ArtifactRef]) -> None:
        """Publish the stored artifacts to the run's listeners, if there are any."""
        if not refs:
            return
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
        headers = {EVENTS_HEADER: record.types(), **EXPIRES}
        try:
            subject, data = subjects.stream(call.tenant, call.run_id), record.model_dump_json().encode()
            await self._access.bus.publish_surely(subject, data, f"{call.run_id}.{call.call_id}.stored", headers)
        except Refused as error:
            logger.warning("artifacts_not_shown", reason=str(error))


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


def _is_deep(value: Any) -> bool:
    """Whether the value is nested deeper than readers in some languages accept."""
    return isinstance(value, dict | list) and plain(value) != value


def _as_json(ref: ArtifactRef) -> dict[str, Any]:
    return ref.model_dump(mode="json", exclude_none=True)
