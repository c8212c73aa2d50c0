"""Store the artifacts of a call, and resolve references in its arguments (docs/artifacts.md#where-the-bytes-are).

Rule 1: values above 32 KiB, and the largest of those that exceed 128 KiB together, are stored and replaced by
references.
Rule 2: an artifact id is derived from the call, the path and the bytes (for a stream, the number of pieces), so a
repeated handling finds what the first one stored.
Rule 3: an unavailable store is retried up to the call's patience; then the call fails. The rest of the run does not
wait.
Rule 4: a reference in arguments grants nothing. It is resolved only within the run or session that the artifact belongs
to.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson
import structlog

from contracts import subjects
from contracts.artifacts import ArtifactRef, StoredArtifact
from contracts.events import ArtifactStored
from contracts.limits import MAX_ARTIFACT_BYTES
from contracts.records import EVENTS_HEADER, Record
from contracts.tools import CallRequested
from services.messaging.connection import Bus
from services.messaging.errors import Refused
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.builtin_tools import OBSERVATION
from services.shared.redaction import (
    as_reference,
    dotted,
    from_blob,
    heavy_paths,
    holds_reference,
    plain,
    shortened,
    stored_size,
    to_blob,
    wire_size,
)
from services.tool_runner.errors import ArtifactStoreFailed, InvalidArguments, InvalidResult, ResultTooLarge, RunEnded
from services.tool_runner.images import Cleaned, ToolImages
from services.tool_runner.progress import STREAM_TTL_S, Shown
from services.tool_runner.run_watch import RunWatches
from services.tool_runner.settings import ToolRunnerSettings

T = TypeVar("T")
U = TypeVar("U")
logger = structlog.get_logger(__name__)

RESULT = dotted(())
_MAX_CONCURRENT = 4
_MAX_REFERENCES = 1000
"""References in one outcome."""
_INLINE_ENCODE_BYTES = 256 * 1024
_MIN_PATIENCE_S = 1.0
_BYTES_PATIENCE_S = 2.0
"""Seconds to wait for the store before bytes stay in the message."""
_HEADROOM_BYTES = 64 * 1024
"""Bytes of a request in addition to its arguments."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result that fits into a message: its large values are references."""

    observation: Any
    artifacts: dict[str, Any]


class Typed(NamedTuple):
    """A value and its artifact type, for clients that display it."""

    value: Any
    artifact_type: str | None


class CallArtifacts:
    """The artifacts of calls, in the artifact store."""

    def __init__(self, bus: Bus, run_watches: RunWatches, limits: ToolRunnerSettings) -> None:
        self._bus = bus
        self._run_watches = run_watches
        self._limits = limits
        self._images = ToolImages(limits)

    async def clean(
        self, call: CallRequested, artifacts: Mapping[str, Any], types: Mapping[str, str], until: float
    ) -> Cleaned:
        """Return the artifacts with cleaned images, for values and references alike. Raises what `store` raises."""
        client = self._client(call, until)

        async def put(path: str, data: bytes) -> ArtifactRef:
            return await _store(client, call, path, Typed(data, types.get(path)))

        try:
            return await self._unless_ended(call, self._images.clean(call.tool, call.tenant, artifacts, client, put))
        except ArtifactFailed as error:
            raise _failure(call, error) from error

    async def store(
        self,
        call: CallRequested,
        artifacts: Mapping[str, Any],
        types: Mapping[str, str],
        observation: Any,
        value: Any,
        until: float,
    ) -> StoredResult:
        """Store the large values of a result, and return what travels in the message.

        `artifacts`: values, and references stored before.

        `types`: artifact types by path, as the streams declared them; `value`: the complete result.

        Raises ResultTooLarge, InvalidResult, ArtifactStoreFailed when the store is unavailable `until` then, RunEnded.
        """
        refs = {path: each for path, each in artifacts.items() if isinstance(each, ArtifactRef)}
        everything = {path: each for path, each in artifacts.items() if path not in refs}
        is_heavy = wire_size(observation) > self._limits.observation_max_bytes
        if is_heavy:
            # The complete result for tools and people; and the observation for the model, if it differs.
            everything |= {RESULT: value} if observation is value else {RESULT: value, OBSERVATION: observation}
        heavy = heavy_paths(everything) | {path for path, each in everything.items() if _is_deep(each)}
        heavy |= everything.keys() & {RESULT, OBSERVATION} if is_heavy else set()
        _check(call, everything, heavy, len(refs))
        values = {path: Typed(each, types.get(path)) for path, each in everything.items()}
        if heavy:
            refs |= await self._unless_ended(
                call, self._for_each(call, {path: values[path] for path in heavy}, _store, until)
            )
        refs |= await self._store_bytes(call, {path: each for path, each in values.items() if path not in heavy}, until)
        if refs:
            await self._announce(call, refs)
        # In the order of the result, followed by the result itself.
        kept = {
            path: _as_json(refs[path]) if path in refs else _inline(everything[path])
            for path in {**artifacts, **everything}
        }
        if is_heavy:
            observation = shortened(
                observation, refs.get(OBSERVATION, refs[RESULT]), self._limits.observation_shown_characters
            )
        return StoredResult(observation, kept)

    async def _store_bytes(
        self, call: CallRequested, values: Mapping[str, "Typed"], until: float
    ) -> dict[str, ArtifactRef]:
        """Store values that are bytes, whatever their size, since a reference has their type.

        Without a store they stay inline.
        """
        found = {path: each for path, each in values.items() if isinstance(each.value, bytes)}
        if not found:
            return {}
        try:
            return await self._unless_ended(
                call, self._for_each(call, found, _store, min(until, time.monotonic() + _BYTES_PATIENCE_S))
            )
        except ArtifactStoreFailed as failure:
            logger.info("bytes_kept_inline", reason=str(failure))
            return {}

    async def assemble(self, call: CallRequested, streams: Mapping[str, Shown], until: float) -> dict[str, Any]:
        """Return the values of finished streams by path, or references where they are large.

        A stream whose pieces have expired is left out. Raises what `store` raises.
        """
        if not streams:
            return {}
        found = await self._unless_ended(call, self._for_each(call, streams, _assembled, until))
        return {path: each for path, each in found.items() if each is not None}

    async def _for_each(
        self,
        call: CallRequested,
        given: Mapping[str, T],
        work: Callable[[ArtifactClient, CallRequested, str, T], Awaitable[U]],
        until: float,
    ) -> dict[str, U]:
        """Run `work` for each path, a few at once."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT)
        client = self._client(call, until)

        async def one(path: str, each: T) -> U:
            async with slots:
                return await work(client, call, path, each)

        working = [asyncio.create_task(one(path, each)) for path, each in given.items()]
        try:
            return dict(zip(given, await asyncio.gather(*working), strict=True))
        except (ArtifactFailed, ValueError, RecursionError) as error:
            raise _failure(call, error) from error
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    def _client(self, call: CallRequested, until: float) -> ArtifactClient:
        left_s = until - time.monotonic()
        if call.deadline_at is not None:
            left_s = min(left_s, call.deadline_at / 1000 - time.time())
        return ArtifactClient(self._bus, patience_s=max(left_s, _MIN_PATIENCE_S))

    async def _unless_ended(self, call: CallRequested, work: Awaitable[T]) -> T:
        """Return the result of `work`, or raise RunEnded as soon as the run ends."""
        task = asyncio.ensure_future(work)
        has_ended = False

        def on_end() -> None:
            nonlocal has_ended
            has_ended = True
            task.cancel()

        watch = self._run_watches.watch(call.tenant, call.run_id, on_end)
        try:
            return await task
        except asyncio.CancelledError:
            if has_ended:
                raise RunEnded from None
            raise
        finally:
            watch.stop()
            task.cancel()

    async def _announce(self, call: CallRequested, refs: Mapping[str, ArtifactRef]) -> None:
        """Publish the stored artifacts to the run's listeners."""
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
            await self._bus.publish_surely(subject, data, f"{call.run_id}.{call.call_id}.stored", headers)
        except Refused as error:
            logger.warning("artifacts_not_shown", reason=str(error))

    async def resolve(self, call: CallRequested, patience_s: float) -> dict[str, Any]:
        """Return the call's arguments with values in place of references.

        Raises InvalidArguments, ArtifactStoreFailed, RunEnded.
        """
        if not holds_reference(call.args):
            return call.args
        found: dict[str, Any] = {}
        client = self._client(call, time.monotonic() + patience_s)
        room = self._bus.nc.max_payload - _HEADROOM_BYTES
        try:
            for ref in _references(call.args):
                if ref.artifact_id not in found:
                    found[ref.artifact_id], size = await self._unless_ended(
                        call, _fetched(client, call, ref.artifact_id, room)
                    )
                    room -= size
        except ArtifactTooLarge as error:
            raise InvalidArguments(
                f"the artifacts in the arguments are too large to be passed to a tool: {error.reason}"
            ) from error
        except ArtifactFailed as error:
            raise ArtifactStoreFailed(
                f"an artifact in the arguments of {call.tool} cannot be read: {error.reason}", error
            ) from error
        args: dict[str, Any] = _resolved(call.args, found)
        if (size := wire_size(args)) > self._bus.nc.max_payload - _HEADROOM_BYTES:
            raise InvalidArguments(f"the arguments have {size} bytes, too many for a tool")
        return args


async def _store(client: ArtifactClient, call: CallRequested, path: str, typed: Typed) -> ArtifactRef:
    value = typed.value
    light = isinstance(value, bytes) or wire_size(value) <= _INLINE_ENCODE_BYTES
    blob = to_blob(value) if light else await asyncio.to_thread(to_blob, value)
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


async def _assembled(client: ArtifactClient, call: CallRequested, path: str, shown: Shown) -> Any:
    """Return a stream's value, its reference, or None when pieces of it are gone. Raises ArtifactFailed."""
    try:
        return await client.assemble(
            call.tenant,
            call.run_id,
            call.call_id,
            shown.stream_id,
            pieces=shown.pieces,
            since=shown.since,
            artifact_id=_id_of(call, path, f"{shown.pieces} pieces"),
            session=call.session_id,
            namespace=call.tool,
        )
    except ArtifactNotFound as error:
        logger.warning("artifact_stream_lost", stream_id=shown.stream_id, reason=error.reason)
        return None


def _id_of(call: CallRequested, path: str, content: str) -> str:
    place = f"{call.tenant}\n{call.run_id}\n{call.call_id}\n{path}\n{content}"
    return hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]


async def _fetched(client: ArtifactClient, call: CallRequested, artifact_id: str, room: int) -> tuple[Any, int]:
    """Return an artifact's value as JSON, and its size.

    Raises ArtifactFailed, and InvalidArguments for a foreign artifact.
    """
    try:
        stored = await client.head(call.tenant, artifact_id)
        if _belongs(stored, call):
            ref, body = await client.read(call.tenant, artifact_id, limit=room)
            return _inline(from_blob(body, ref)), len(body)
    except ArtifactNotFound:
        pass
    raise InvalidArguments(f"there is no artifact {artifact_id} in this run or session")


def _belongs(stored: StoredArtifact, call: CallRequested) -> bool:
    """Whether it belongs to the call's run or session, or to the tenant as a whole."""
    if stored.run_id is None and stored.session_id is None:
        return True
    return stored.run_id == call.run_id or (stored.session_id is not None and stored.session_id == call.session_id)


def _references(value: Any) -> list[ArtifactRef]:
    ref = as_reference(value)
    if ref is not None:
        return [ref]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [each for item in items for each in _references(item)]


def _resolved(value: Any, found: Mapping[str, Any]) -> Any:
    ref = as_reference(value)
    if ref is not None:
        return found[ref.artifact_id]
    if isinstance(value, Mapping):
        return {key: _resolved(item, found) for key, item in value.items()}
    return [_resolved(item, found) for item in value] if isinstance(value, list) else value


def _check(call: CallRequested, values: Mapping[str, Any], heavy: frozenset[str], stored: int) -> None:
    for path in heavy:
        if (size := stored_size(values[path])) > MAX_ARTIFACT_BYTES:
            what = "the result" if path == RESULT else f"`{path}` in the result"
            most = f"at most {MAX_ARTIFACT_BYTES} can be kept"
            raise ResultTooLarge(
                f"{what} of {call.tool} has {size} bytes, and {most}; ask for less, or for a part of it"
            )
    if (count := len(heavy) + stored) > _MAX_REFERENCES:
        raise ResultTooLarge(
            f"the result of {call.tool} holds {count} large values, and at most {_MAX_REFERENCES} can be stored; ask for fewer"
        )


def _failure(call: CallRequested, error: Exception) -> Exception:
    """Return the error for the model: the tool did its work, and its result is lost."""
    if isinstance(error, ArtifactTooLarge):
        return ResultTooLarge(f"the result of {call.tool} is too large to be stored: {error.reason}")
    if isinstance(error, StorageUnavailable):
        return ArtifactStoreFailed(
            f"{call.tool} has done its work, but its result is too large for a message and could not be stored", error
        )
    if isinstance(error, ArtifactFailed):
        return ArtifactStoreFailed(
            f"{call.tool} has done its work, but its result could not be stored: {error.reason}", error
        )
    return InvalidResult(f"what {call.tool} answered cannot be stored: {type(error).__name__}")


def _inline(value: Any) -> Any:
    """Return a value as it travels in a message: bytes as base64."""
    return plain(value) if isinstance(value, bytes) else value


def _is_deep(value: Any) -> bool:
    """Whether the value is nested deeper than readers in some languages accept."""
    return isinstance(value, dict | list) and plain(value) != value


def _as_json(ref: ArtifactRef) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(ref.model_dump_json(exclude_none=True))
    return found
