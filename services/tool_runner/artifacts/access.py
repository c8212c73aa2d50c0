"""One call's access to the artifact store, with patience and while its run is open: store, read, resolve references.

Rule 1: a value or stream is stored under an id that a repeated handling of the call finds again.
Rule 2: whether the model may read an artifact (`read_artifact`) the planner decides, from the run's log. Here it is
checked that the artifact belongs to the run.
Rule 3: in the place of references a tool gets values, which fit its input schema. A reference grants nothing: it is
resolved only within the run or session that the artifact belongs to.
Rule 4: an argument whose schema says `by_reference` stays a reference, once it is known to be the run's: its tool reads
the bytes in ranges, so no limit of a message bounds them.
Rule 5: a reference with a path stands for that part of the artifact. An artifact is read once for all of its parts.
"""

import asyncio
import codecs
import hashlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import structlog

from contracts.artifacts import BY_REFERENCE, ArtifactRef
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire.base import MAX_ARTIFACT_BYTES
from contracts.wire.names import unix_ms
from runwire.plans.templates import is_index
from services.messaging.connection import Bus
from services.shared.artifacts.client import ArtifactClient, Description
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.redaction.json_values import plain, wire_size
from services.shared.redaction.stored_values import as_reference, from_blob, holds_reference, to_blob
from services.tool_runner.calls.history import RunWatch
from services.tool_runner.calls.progress import FinishedStream
from services.tool_runner.errors import ArtifactNotReadable, ArtifactStoreFailed, InvalidArguments, MissingOutputField

logger = structlog.get_logger(__name__)
T = TypeVar("T")
U = TypeVar("U")

_MAX_CONCURRENT_REQUESTS = 4
_MIN_PATIENCE_S = 1.0
_MAX_INLINE_BYTES = 256 * 1024
"""Smaller values are encoded and decoded without a thread."""
_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest UTF-8 character."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes that cannot begin a character."""
_HEADROOM_BYTES = 64 * 1024
"""Bytes of a request in addition to its arguments."""
_MAX_FIELD_CHARACTERS = 200
Path = tuple[str, ...]
Parts = Mapping[tuple[str, Path], Any]
"""The values that take the places of references: by id of the artifact and path in it."""


class StoreAccess:
    """Requests of one call to the artifact store. `until`: how long an unavailable store is retried, monotonic time."""

    def __init__(self, bus: Bus, call: CallRequested, watch: RunWatch) -> None:
        self.bus = bus
        self.call = call
        self.watch = watch

    def client(self, until: float) -> ArtifactClient:
        """Return a client with the time that is left, or that the run's deadline leaves."""
        left_s = until - time.monotonic()
        if self.call.deadline_at is not None:
            left_s = min(left_s, (self.call.deadline_at - unix_ms()) / 1000)
        return ArtifactClient(self.bus, patience_s=max(left_s, _MIN_PATIENCE_S))

    async def for_each(
        self,
        given: Mapping[str, T],
        work: Callable[[ArtifactClient, CallRequested, str, T], Awaitable[U]],
        until: float,
    ) -> dict[str, U]:
        """Run `work` for each path, a few at once. Raises its first error, or RunEnded."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        client = self.client(until)

        async def one(path: str, each: T) -> U:
            async with slots:
                return await work(client, self.call, path, each)

        working = [asyncio.create_task(one(path, each)) for path, each in given.items()]
        try:
            return dict(zip(given, await self.watch.unless_ended(asyncio.gather(*working)), strict=True))
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)


async def store_value(
    client: ArtifactClient,
    call: CallRequested,
    path: str,
    value: Any,
    description: Description,
    on_warning: Callable[[str], None] | None = None,
) -> ArtifactRef:
    """Store a value, and return its reference. Raises ArtifactFailed, ValueError, RecursionError."""
    is_small = isinstance(value, bytes) or wire_size(value) <= _MAX_INLINE_BYTES
    blob = to_blob(value) if is_small else await asyncio.to_thread(to_blob, value)
    digest = await asyncio.to_thread(hashlib.sha256, blob.body)
    said: Description = {
        **description,
        "namespace": call.tool,
        "mime_type": blob.mime_type,
        "json_type": blob.json_type,
        "items": blob.items,
    }
    return await client.put(
        call.tenant,
        blob.body,
        session=call.session_id,
        run=call.run_id,
        artifact_id=_id_of(call, path, digest.hexdigest()),
        on_warning=on_warning,
        **said,
    )


async def assembled(client: ArtifactClient, call: CallRequested, path: str, stream: FinishedStream) -> Any:
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


async def read_artifact(access: StoreAccess, max_bytes: int, until: float) -> dict[str, Any]:
    """Return the part that a call asks for, of at most `max_bytes` bytes. An unavailable store is retried `until` then.

    Raises ArtifactNotReadable and ArtifactStoreFailed.
    """
    call = access.call
    artifact_id, offset = str(call.args["artifact_id"]), int(call.args.get("offset", 0))
    length = min(int(call.args.get("length", max_bytes)), max_bytes)
    if not call.readable:
        raise ArtifactNotReadable(artifact_id)
    try:
        # A character that is cut by the end belongs to this part; one that is cut by the beginning belongs to the part
        # before.
        download = await access.client(until).get(
            call.tenant, artifact_id, run=call.run_id, offset=offset, length=max(length, _MAX_CHARACTER_BYTES)
        )
        body = await download.read(max(length, _MAX_CHARACTER_BYTES))
    except ArtifactNotFound as error:
        raise ArtifactNotReadable(artifact_id) from error
    except ArtifactFailed as error:
        raise ArtifactStoreFailed(f"the artifact {artifact_id} cannot be read now: {error.reason}", error) from error
    # Only complete characters.
    skipped = min(len(body) - len(body.lstrip(_CONTINUATION_BYTES)), _MAX_CHARACTER_BYTES - 1)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(body[skipped:], final=download.ref.size <= offset + len(body))
    begins, ends = offset + skipped, offset + len(body) - len(decoder.getstate()[0])
    found: dict[str, Any] = {"artifact_id": artifact_id, "offset": begins, "size": download.ref.size, "text": text}
    return found if ends >= download.ref.size else found | {"next_offset": ends}


async def resolve(access: StoreAccess, spec: ToolSpec, patience_s: float) -> dict[str, Any]:
    """Return the call's arguments with values in place of references, but for those that the tool reads itself.

    Raises InvalidArguments, MissingOutputField, ArtifactStoreFailed, RunEnded.
    """
    call = access.call
    if not holds_reference(call.args):
        return call.args
    max_bytes = access.bus.nc.max_payload - _HEADROOM_BYTES
    client = access.client(time.monotonic() + patience_s)
    properties = spec.input_schema.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    read = {name for name, each in declared.items() if isinstance(each, Mapping) and each.get(BY_REFERENCE) is True}
    kept = {name: value for name, value in call.args.items() if name in read and as_reference(value)}
    given = {name: value for name, value in call.args.items() if name not in kept}
    try:
        for ref in _references(kept):
            await access.watch.unless_ended(_check_owner(client, call, ref.artifact_id))
        parts = await access.watch.unless_ended(_parts(client, call, given, max_bytes))
    except ArtifactTooLarge as error:
        raise InvalidArguments(
            f"the artifacts in the arguments are too large to be passed to a tool: {error.reason}"
        ) from error
    except ArtifactFailed as error:
        raise ArtifactStoreFailed(
            f"an artifact in the arguments of {call.tool} cannot be read: {error.reason}", error
        ) from error
    args: dict[str, Any] = _resolved(given, parts) | kept
    if (size := wire_size(args)) > max_bytes:
        raise InvalidArguments(f"the arguments have {size} bytes, too many for a tool")
    return args


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


async def _parts(client: ArtifactClient, call: CallRequested, given: Mapping[str, Any], max_bytes: int) -> Parts:
    """Return what the references of arguments stand for. `max_bytes`: of all artifacts that are meant as a whole."""
    paths: defaultdict[str, dict[Path, None]] = defaultdict(dict)
    for ref in _references(given):
        paths[ref.artifact_id][_path_of(ref)] = None
    found: dict[tuple[str, Path], Any] = {}
    left_bytes, left_for_parts = max_bytes, MAX_ARTIFACT_BYTES
    for artifact_id, wanted in paths.items():
        is_whole = () in wanted
        await _check_owner(client, call, artifact_id)
        ref, body = await client.read(call.tenant, artifact_id, limit=left_bytes if is_whole else left_for_parts)
        left_bytes -= len(body) if is_whole else 0
        left_for_parts -= 0 if is_whole else len(body)
        is_small = len(body) <= _MAX_INLINE_BYTES
        value = _value(body, ref) if is_small else await asyncio.to_thread(_value, body, ref)
        found |= {(artifact_id, path): _at(value, path, ref) for path in wanted}
    return found


async def _check_owner(client: ArtifactClient, call: CallRequested, artifact_id: str) -> None:
    """Raise InvalidArguments for a foreign artifact, or ArtifactFailed."""
    try:
        stored = await client.head(call.tenant, artifact_id)
        is_tenants = stored.run_id is None and stored.session_id is None
        is_sessions = stored.session_id is not None and stored.session_id == call.session_id
        belongs = is_tenants or stored.run_id == call.run_id or is_sessions
        if belongs and stored.user_id in {None, call.user_id}:
            return
    except ArtifactNotFound:
        pass
    raise InvalidArguments(f"there is no artifact {artifact_id} in this run or session")


def _value(body: bytes, ref: ArtifactRef) -> Any:
    """Return an artifact's value as JSON. Raises InvalidArguments if its bytes are not what its reference says."""
    try:
        value = from_blob(body, ref)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the artifact {ref.artifact_id} is no {ref.json_type}") from error
    return plain(value) if isinstance(value, bytes) else value


def _at(value: Any, path: Path, ref: ArtifactRef) -> Any:
    """Return the part of an artifact at a path. Raises MissingOutputField. An explicit null is a value."""
    for depth, segment in enumerate(path, 1):
        if isinstance(value, Mapping) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and is_index(segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            field = ".".join(path[:depth])
            shown = field if len(field) <= _MAX_FIELD_CHARACTERS else field[:_MAX_FIELD_CHARACTERS] + "…"
            raise MissingOutputField(ref.own_id or ref.artifact_id, shown)
    return value


def _references(value: Any) -> Iterator[ArtifactRef]:
    ref = as_reference(value)
    if ref is not None:
        yield ref
        return
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _references(item)


def _path_of(ref: ArtifactRef) -> Path:
    return tuple(ref.path or ())


def _resolved(value: Any, parts: Parts) -> Any:
    ref = as_reference(value)
    if ref is not None:
        return parts[ref.artifact_id, _path_of(ref)]
    if isinstance(value, Mapping):
        return {key: _resolved(item, parts) for key, item in value.items()}
    return [_resolved(item, parts) for item in value] if isinstance(value, list) else value
