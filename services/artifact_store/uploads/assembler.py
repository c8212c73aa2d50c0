"""Assemble an artifact stream that no field of the tool's result contains (docs/artifacts.md#where-the-bytes-are).

Rule 1: pieces are read back from the run's own subject, in order. If one is missing, there is no artifact.
Rule 2: a small value is returned inline and not stored. A large one is stored like any artifact: bytes first, then the
reference.
Rule 3: a repeated request gets the same reference, even after the pieces have expired. Concurrent requests share one
task.
Rule 4: memory is bounded: few streams are read at once, page by page, and written from their buffer. Streams that wait
for the S3 server do not block streams that do not need it.
"""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.artifacts.references import ArtifactRef, AssembledStream, AssembleStream, HeadArtifact, PutArtifact
from contracts.runs.events import ArtifactChunk
from contracts.wire import subjects
from contracts.wire.limits import MAX_ARTIFACT_BYTES, MAX_INLINE_BYTES, MAX_PUT_BYTES
from contracts.wire.records import EVENTS_HEADER, Record
from services.artifact_store.store.mime_types import HEAD_BYTES
from services.artifact_store.store.store import ArtifactStore, Done
from services.artifact_store.uploads.buffer import StreamBuffer
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.reads import sequence_of
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.redaction.stored_values import mime_type_of

MAX_STREAMS = 32
"""Streams that are assembled at once. Further requests are refused with a retryable error."""
_MAX_ASSEMBLING = 4
_PAGE_ATTEMPTS = 3


class Assembler:
    """The streams that this instance of the store assembles."""

    def __init__(self, bus: Bus, store: ArtifactStore) -> None:
        self._bus = bus
        self._store = store
        self._reading, self._writing = asyncio.Semaphore(_MAX_ASSEMBLING), asyncio.Semaphore(_MAX_ASSEMBLING)
        self._under_way: dict[AssembleStream, asyncio.Task[AssembledStream]] = {}
        self._is_stopped = False

    async def assemble(self, request: AssembleStream) -> AssembledStream:
        """Return the value of a stream, or above 32 KiB its reference.

        Raises ArtifactNotFound when pieces are missing, ArtifactTooLarge, ArtifactInvalid and StorageUnavailable.
        """
        task = self._under_way.get(request)
        if task is None:
            self._check_running()
            if len(self._under_way) >= MAX_STREAMS:
                raise StorageUnavailable("too many streams are being assembled")
            task = self._under_way[request] = asyncio.create_task(self._assemble(request))
            task.add_done_callback(lambda _: self._under_way.pop(request))
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Abandon streams in progress. Their callers retry on another instance."""
        self._is_stopped = True
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _assemble(self, request: AssembleStream) -> AssembledStream:
        kept = await self._stored(request)
        if kept is not None:
            return AssembledStream(ref=kept)
        buffer = StreamBuffer()
        try:
            async with self._reading:
                await self._gather(request, buffer)
                if buffer.wire_size <= MAX_INLINE_BYTES:
                    value = await asyncio.to_thread(buffer.value)
                    value = base64.b64encode(value).decode() if isinstance(value, bytes) else value
                    return AssembledStream(json_type=buffer.json_type, value=value)
            async with self._writing:
                self._check_running()
                return AssembledStream(ref=await self._put(request, buffer))
        finally:
            await asyncio.to_thread(buffer.close)

    async def _stored(self, request: AssembleStream) -> ArtifactRef | None:
        """Return the reference if the stream was assembled before."""
        place = {"session_id": request.session_id, "run_id": request.run_id}
        try:
            return (
                await self._store.head(HeadArtifact(tenant=request.tenant, artifact_id=request.artifact_id, **place))
            ).ref
        except ArtifactNotFound:
            return None

    async def _gather(self, request: AssembleStream, buffer: StreamBuffer) -> None:
        """Read the pieces. Raises ArtifactNotFound when one is missing."""
        subject, start = subjects.stream(request.tenant, request.run_id), request.since
        while buffer.count < request.pieces:
            page, more = await self._page(subject, start)
            await asyncio.to_thread(_add, buffer, page, request)
            if page:
                start = sequence_of(page[-1]) + 1
            if buffer.count < request.pieces and not (page and more):
                newest = await self._bus.last_from_leader(subjects.RUNS, subject, _PAGE_ATTEMPTS)
                if newest is None or newest[0] < start:
                    raise _missing(buffer)
                await self._bus.retry_pause()  # The replica that answered lags behind.
        if not buffer.is_finished:
            raise ArtifactInvalid("the stream has not been finished")

    async def _page(self, subject: str, start: int) -> tuple[list[Msg], int]:
        reader = await self._bus.reader(subjects.RUNS)
        for _ in range(_PAGE_ATTEMPTS):
            self._check_running()
            with suppress(Unavailable):
                return await reader.page(subject, start)
        raise StorageUnavailable("NATS did not return the pieces of the stream")

    async def _put(self, request: AssembleStream, buffer: StreamBuffer) -> ArtifactRef:
        kind = buffer.json_type
        put = PutArtifact(
            tenant=request.tenant,
            artifact_id=request.artifact_id,
            size=buffer.size,
            sha256=await asyncio.to_thread(buffer.digest),
            session_id=request.session_id,
            run_id=request.run_id,
            namespace=request.namespace,
            filename=request.filename,
            mime_type=mime_type_of(kind),
            json_type=kind,
            items=buffer.count if kind == "list" else None,
            artifact_type=buffer.artifact_type or None,
            ttl_s=request.ttl_s,
        )
        if put.size <= MAX_PUT_BYTES:
            return (await self._store.put(put, await asyncio.to_thread(lambda: b"".join(buffer.chunks())))).ref
        head = await asyncio.to_thread(lambda: next(buffer.chunks())[:HEAD_BYTES])
        mime_type = self._store.mime_type(put, head)
        entry = await self._store.begin(put)
        if isinstance(entry, Done):
            return entry.ref

        def chunks() -> Iterator[bytes]:
            for chunk in buffer.chunks():
                self._check_running()
                yield chunk

        return (await self._store.put_stream(put, entry, chunks(), lambda: mime_type)).ref

    def _check_running(self) -> None:
        if self._is_stopped:
            raise StorageUnavailable("the store is stopping: try again")


def _add(buffer: StreamBuffer, page: list[Msg], request: AssembleStream) -> None:
    """Append the pieces of a page that belong to the stream. Raises ArtifactNotFound at a gap."""
    named = request.call_id.encode()
    for message in page:
        if (message.headers or {}).get(EVENTS_HEADER) != "artifact_chunk" or named not in message.data:
            continue
        try:
            events = Record.model_validate_json(message.data).events
        except ValidationError:
            continue
        for piece in events:
            if not isinstance(piece, ArtifactChunk):
                continue
            if (piece.call_id, piece.stream_id) != (request.call_id, request.stream_id) or piece.seq < buffer.count:
                continue
            if piece.seq > buffer.count:
                raise _missing(buffer)
            buffer.add(piece)
            if buffer.size > MAX_ARTIFACT_BYTES:
                raise ArtifactTooLarge(f"its pieces have more than {MAX_ARTIFACT_BYTES} bytes")
            if buffer.count == request.pieces:
                return


def _missing(buffer: StreamBuffer) -> ArtifactNotFound:
    return ArtifactNotFound(f"piece {buffer.count} of the stream is missing")
