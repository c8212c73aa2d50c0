"""One call's access to the artifact store: with patience, and only while its run goes on.

Rule 1: a value or stream is stored under an id that a repeated handling of the call finds again.
Rule 2: whether the model may read an artifact (`read_artifact`) the planner decides, from the run's log. Here it is
checked that the artifact belongs to the run.
"""

import asyncio
import codecs
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import structlog

from contracts.artifacts.references import ArtifactRef
from contracts.tools.messages import CallRequested
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.shared.artifacts.client import ArtifactClient, Description
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.shared.redaction.placeholders import wire_size
from services.shared.redaction.stored_values import to_blob
from services.tool_runner.calls.history import RunWatch
from services.tool_runner.calls.progress import FinishedStream
from services.tool_runner.errors import ArtifactNotReadable, ArtifactStoreFailed

logger = structlog.get_logger(__name__)
T = TypeVar("T")
U = TypeVar("U")

_MAX_CONCURRENT_REQUESTS = 4
_MIN_PATIENCE_S = 1.0
_MAX_INLINE_ENCODE_BYTES = 256 * 1024
"""Smaller values are encoded without a thread."""
_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest UTF-8 character."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes that cannot begin a character."""


class StoreAccess:
    """Requests of one call to the artifact store. `until`: how long an unavailable store is retried, monotonic time."""

    def __init__(self, bus: Bus, call: CallRequested, watch: RunWatch) -> None:
        self.bus = bus
        self.call = call
        self._watch = watch

    def client(self, until: float) -> ArtifactClient:
        """Return a client with the time that is left, or that the run's deadline leaves."""
        left_s = until - time.monotonic()
        if self.call.deadline_at is not None:
            left_s = min(left_s, (self.call.deadline_at - unix_ms()) / 1000)
        return ArtifactClient(self.bus, patience_s=max(left_s, _MIN_PATIENCE_S))

    async def unless_ended(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises RunEnded as soon as the run ends."""
        return await self._watch.unless_ended(work)

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
            return dict(zip(given, await self.unless_ended(asyncio.gather(*working)), strict=True))
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
    is_small = isinstance(value, bytes) or wire_size(value) <= _MAX_INLINE_ENCODE_BYTES
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
