"""Assemble an artifact stream that no field of the tool's result contains (docs/artifacts.md#where-the-bytes-are).

Rule 1: pieces are read back from the run's own subject, in order. If one is missing, there is no artifact.
Rule 2: a small value is returned inline and not stored. A large one is stored like any artifact: bytes first, then the
reference.
Rule 3: a repeated request gets the same reference, even after the pieces have expired. Concurrent requests share one
task.
Rule 4: memory is bounded: few streams are read at once, page by page, and written from their buffer. Streams that wait
for the S3 server do not block streams that do not need it.
Rule 5: pieces of text become one text, or bytes if they are base64 of a binary type; any other JSON becomes the list of
the pieces, which a reader applies in order. The kind is known after the last piece.
Rule 6: each piece is held once, as a line of JSON, in a temporary file beyond a megabyte (`StreamBuffer`). The value is
produced while the file is read.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import orjson
from nats.aio.msg import Msg

from contracts.artifacts import ArtifactRef, AssembledStream, AssembleStream, HeadArtifact, PutArtifact
from contracts.runs.events import ArtifactChunk
from contracts.wire import subjects
from contracts.wire.base import MAX_ARTIFACT_BYTES, MAX_INLINE_BYTES, MAX_PUT_BYTES, parsed
from contracts.wire.records import EVENTS_HEADER, Record
from services.artifact_store.store import HEAD_BYTES, ArtifactStore, Done
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.reads import sequence_of
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.redaction.stored_values import mime_type_of, to_blob

_BINARY_TYPES = frozenset({"binary", "bytes"})
_TEXT_TYPES = ("text/", "application/json", "application/xml")
_MAX_MEMORY_BYTES = 1 << 20
_BLOCK_BYTES = 256 << 10


class StreamBuffer:
    """The pieces of one stream. Its methods may block on a disk. The caller closes it."""

    def __init__(self) -> None:
        self.count = 0
        self.is_finished = False
        """Whether a piece was marked as the last."""
        # `close` is what its owner calls.
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115
        self.artifact_type = ""
        """The type that the first typed piece declares."""
        self._is_text = self._is_base64 = True
        self._json = self._utf8 = self._decoded = 0

    def add(self, piece: ArtifactChunk) -> None:
        """Append the next piece."""
        line = to_blob([piece.chunk]).body[1:-1]  # in a list, since a text by itself would be stored without its quotes
        self._file.write(line + b"\n")
        self.count += 1
        self.is_finished |= piece.done
        self.artifact_type = self.artifact_type or piece.artifact_type or ""
        self._json += len(line)
        if isinstance(piece.chunk, str):
            self._utf8 += len(piece.chunk.encode())
            if self._is_base64:
                try:
                    self._decoded += len(base64.b64decode(piece.chunk, validate=True))
                except (binascii.Error, ValueError):
                    self._is_base64 = False  # Not base64, whatever its type says: treat it as text.
        else:
            self._is_text = False

    @property
    def json_type(self) -> Literal["list", "str", "bytes"]:
        """The kind of the assembled value."""
        if not self._is_text:
            return "list"
        is_binary = self.artifact_type in _BINARY_TYPES or (
            "/" in self.artifact_type and not self.artifact_type.startswith(_TEXT_TYPES)
        )
        return "bytes" if is_binary and self._is_base64 else "str"

    @property
    def size(self) -> int:
        """The size of the stored form in bytes."""
        as_list = self._json + max(self.count - 1, 0) + len("[]")
        return {"list": as_list, "str": self._utf8, "bytes": self._decoded}[self.json_type]

    @property
    def wire_size(self) -> int:
        """The size inside a message in bytes."""
        in_one_text = self._json - 2 * self.count + len('""')
        return {"list": self.size, "str": in_one_text, "bytes": 4 * -(-self._decoded // 3) + len('""')}[self.json_type]

    def chunks(self) -> Iterator[bytes]:
        """Yield the stored form from the beginning."""
        block = bytearray()
        for part in self._parts():
            block += part
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)

    def _parts(self) -> Iterator[bytes]:
        kind = self.json_type
        self._file.seek(0)
        for number, line in enumerate(self._file):
            if kind == "list":
                yield (b"," if number else b"[") + line[:-1]
            else:
                text: str = orjson.loads(line)
                yield text.encode() if kind == "str" else base64.b64decode(text)
        if kind == "list":
            yield b"]" if self.count else b"[]"

    def value(self) -> Any:
        """Return the assembled value."""
        body = b"".join(self.chunks())
        if self.json_type == "bytes":
            return body
        # Not by orjson: it would turn a large integer into a float.
        return body.decode() if self.json_type == "str" else json.loads(body)

    def digest(self) -> str:
        """Return the SHA-256 of the stored form."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def close(self) -> None:
        """Delete the pieces."""
        self._file.close()


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
        with suppress(ArtifactNotFound):
            asked = HeadArtifact(**request.model_dump(include={*HeadArtifact.model_fields}))
            return (await self._store.head(asked)).ref
        return None

    async def _gather(self, request: AssembleStream, buffer: StreamBuffer) -> None:
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
            **request.model_dump(include={*PutArtifact.model_fields}),
            size=buffer.size,
            sha256=await asyncio.to_thread(buffer.digest),
            mime_type=mime_type_of(kind),
            json_type=kind,
            items=buffer.count if kind == "list" else None,
            artifact_type=buffer.artifact_type or None,
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
        record = parsed(Record, message.data)
        for piece in record.events if record is not None else ():
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
