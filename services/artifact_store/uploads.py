"""Uploads: artifacts too large for one message, forwarded to S3 chunk by chunk.

Rule 1: an upload holds at most a window of chunks, so memory does not grow with the artifact. A chunk is acknowledged
once it was handed to the writer, and the sender has at most a window of unacknowledged chunks.
Rule 2: chunks may arrive out of order; they are forwarded in order.
Rule 3: an upload belongs to the instance that opened it. If the instance or the sender dies, nothing is visible and the
sender starts again, or the garbage collector deletes what is left.
Rule 4: the last chunk is forwarded only if all bytes match the announced digest, so S3 never stores other bytes.
"""

import asyncio
import hashlib
import queue
from collections.abc import Iterator

import structlog

from contracts.artifacts import ChunkTaken, PutArtifact, UploadOpened
from contracts.wire import subjects
from contracts.wire.base import CHUNK_BYTES
from contracts.wire.names import new_id
from services.artifact_store.entries import ArtifactEntry
from services.artifact_store.store import HEAD_BYTES, ArtifactStore, Done
from services.shared.artifacts.errors import ArtifactFailed, ArtifactInvalid, StorageUnavailable

logger = structlog.get_logger(__name__)

WINDOW_CHUNKS = 3
_MAX_CHUNKS_AHEAD = 64
"""Chunks further ahead than this are refused."""
_SENDER_IDLE_S = 20.0
"""Seconds of silence after which a sender counts as gone."""


class Uploads:
    """The uploads that this instance of the store has opened."""

    def __init__(self, store: ArtifactStore, limit: int) -> None:
        self.instance = new_id()
        self._store = store
        self._free = limit
        self._open: dict[str, _Upload] = {}

    async def open(self, put: PutArtifact) -> tuple[UploadOpened, str | None]:
        """Open an upload, or return the reference if there is nothing to send; and the warning of the put, or None.

        Raises ArtifactInvalid, ArtifactTooLarge, StorageUnavailable.
        """
        if not put.size:
            raise ArtifactInvalid("an empty artifact is sent with the request itself")
        if self._free <= 0:
            raise StorageUnavailable("too many uploads are in progress")
        self._free -= 1
        try:
            entry = await self._store.begin(put)
        except BaseException:
            self._free += 1
            raise
        upload_id, subject = new_id(), subjects.artifact_chunk(self.instance)
        opened = UploadOpened(upload_id=upload_id, subject=subject, chunk_bytes=CHUNK_BYTES, window=WINDOW_CHUNKS)
        if isinstance(entry, Done):
            self._free += 1
            return opened.model_copy(update={"ref": entry.ref}), entry.warning
        upload = self._open[upload_id] = _Upload(put, entry, self._store)

        def on_end(_: asyncio.Task[Done]) -> None:
            del self._open[upload_id]
            self._free += 1

        upload.storing.add_done_callback(on_end)
        return opened, None

    async def take(self, upload_id: str, seq: int, data: bytes) -> tuple[ChunkTaken, str | None]:
        """Accept a chunk. Without data, only confirm that the chunk is here and not acknowledged yet.

        With the last chunk comes the warning of the put, or None.

        Raises the error of its upload, and StorageUnavailable for an unknown upload or chunk.
        """
        upload = self._open.get(upload_id)
        if upload is None:
            raise StorageUnavailable("unknown upload: start again")
        return await upload.take(seq, data) if data else (upload.has(seq), None)

    async def stop(self) -> None:
        """Abandon all uploads. Their senders start again on another instance."""
        self._free = 0
        storing = [upload.storing for upload in self._open.values()]
        for upload in self._open.values():
            upload.give_up(StorageUnavailable("the store is stopping: start again"))
        await asyncio.gather(*storing, return_exceptions=True)


class _Upload:
    """One upload. `storing`: the task that stores it."""

    def __init__(self, put: PutArtifact, entry: ArtifactEntry, store: ArtifactStore) -> None:
        self._put = put
        self._store = store
        self._pipe = _Pipe(put)
        self._mime_type = ""
        self._received = 0
        self._next = 0
        self._waiting: dict[int, asyncio.Event] = {}
        storing = store.put_stream(put, entry, self._pipe.chunks(), lambda: self._mime_type)
        self.storing = asyncio.create_task(storing)
        self.storing.add_done_callback(self._ended)

    def _ended(self, storing: asyncio.Task[Done]) -> None:
        self._pipe.close()
        for ready in self._waiting.values():
            ready.set()
        if not storing.cancelled() and (error := storing.exception()) is not None:
            logger.info("upload_failed", artifact_id=self._put.artifact_id, received=self._received, error=str(error))

    def give_up(self, error: ArtifactFailed) -> None:
        """End the upload with this error."""
        self._pipe.fail(error)

    def has(self, seq: int) -> ChunkTaken:
        """Confirm that a chunk is here, not acknowledged yet. Raises StorageUnavailable if it or its reply was lost."""
        if seq not in self._waiting:
            raise StorageUnavailable("unknown chunk: start again")
        return ChunkTaken(received=self._received)

    async def take(self, seq: int, data: bytes) -> tuple[ChunkTaken, str | None]:
        """Forward a chunk when all before it were forwarded. With the last one, wait for the reference."""
        if seq < self._next or seq >= self._next + _MAX_CHUNKS_AHEAD or seq in self._waiting:
            raise ArtifactInvalid("a chunk was sent twice, or too far ahead")
        ready = self._waiting[seq] = asyncio.Event()
        try:
            if seq > self._next and not self.storing.done():
                await ready.wait()
            if not self.storing.done():
                await self._pass_on(seq, data)
            if self.storing.done() or self._received >= self._put.size:
                done = await asyncio.shield(self.storing)
                return ChunkTaken(received=self._received, ref=done.ref), done.warning
            return ChunkTaken(received=self._received), None
        finally:
            del self._waiting[seq]

    async def _pass_on(self, seq: int, data: bytes) -> None:
        if seq == 0:
            try:
                self._mime_type = self._store.mime_type(self._put, data[:HEAD_BYTES])
            except ArtifactFailed as error:
                self.give_up(error)
                raise
        await self._pipe.put(data)
        self._received += len(data)
        self._next = seq + 1
        if (ready := self._waiting.get(self._next)) is not None:
            ready.set()


class _Pipe:
    """A bounded queue of chunks between the event loop and the thread that writes them.

    Another thread hashes the chunks, so that the writer does not wait for the hash.
    """

    def __init__(self, put: PutArtifact) -> None:
        self._size = put.size
        self._sha256 = put.sha256
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | ArtifactFailed] = queue.SimpleQueue()
        self._digest = hashlib.sha256()
        self._hashing: asyncio.Task[None] | None = None
        self._received = 0
        self._unwritten = 0
        self._has_room = asyncio.Event()
        self._closed = False

    async def put(self, chunk: bytes) -> None:
        """Enqueue a chunk once there is room. Does nothing when the reader is gone.

        If the last chunk completes bytes with a wrong digest, the reader gets ArtifactInvalid instead of it.
        """
        while self._unwritten >= WINDOW_CHUNKS and not self._closed:
            self._has_room.clear()
            await self._has_room.wait()
        self._unwritten += 1
        self._received += len(chunk)
        if self._hashing is not None:
            await self._hashing
        self._hashing = asyncio.create_task(asyncio.to_thread(self._digest.update, chunk))
        if self._received >= self._size:
            await self._hashing
            if self._received > self._size or self._digest.hexdigest() != self._sha256:
                self.fail(ArtifactInvalid("the bytes do not match the announced size and digest"))
                return
        self._queue.put(chunk)

    def close(self) -> None:
        """Unblock writers: the reader is gone."""
        self._closed = True
        self._has_room.set()

    def fail(self, error: ArtifactFailed) -> None:
        """Let the reader raise this error."""
        self._queue.put(error)

    def chunks(self) -> Iterator[bytes]:
        """Yield the chunks, in a thread. Raises the error of `fail`, and StorageUnavailable if no more chunks come."""
        given = 0
        while given < self._size:
            try:
                chunk = self._queue.get(timeout=_SENDER_IDLE_S)
            except queue.Empty:
                raise StorageUnavailable("the sender of an upload stopped sending") from None
            if isinstance(chunk, ArtifactFailed):
                raise chunk
            given += len(chunk)
            yield chunk
            self._loop.call_soon_threadsafe(self._taken)

    def _taken(self) -> None:
        self._unwritten -= 1
        self._has_room.set()
