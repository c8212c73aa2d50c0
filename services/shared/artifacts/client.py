"""The client of the artifact store: store artifacts and read them.

Rule 1: while the store, its S3 server or NATS is unavailable, a call retries up to its patience, then raises
StorageUnavailable. Retries are harmless: the client makes the artifact id once per put.
Rule 2: data that does not fit into one message travels in chunks, a window at a time, so no service holds all of it.
Rule 3: bytes are checked against their digest once all of them were received.
Rule 4: a download asks for ranges, a window of them at a time. Any instance of the store can serve any range, so an
instance that dies costs one range, which is requested again.
"""

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypedDict, TypeVar, Unpack

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts import artifacts
from contracts.artifacts import ArtifactRef
from contracts.wire import subjects
from contracts.wire.base import CHUNK_BYTES, MAX_PUT_BYTES, Message
from contracts.wire.faults import describe
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable
from services.shared.artifacts.requests import Source, StoreRequests, header_value, source_of, warning_of

_RANGES_UNDER_WAY = 3


class Download:
    """An artifact, or a range of it, in transfer. `length`: the number of its bytes."""

    def __init__(
        self, ref: ArtifactRef, offset: int, length: int, first: bytes, fetch: Callable[[int, int], Awaitable[bytes]]
    ) -> None:
        """`first`: the first bytes of the range; `fetch` returns the others, by offset and length."""
        self.ref = ref
        self.offset = offset
        self.length = length
        self._first = first
        self._fetch = fetch

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in order, at most CHUNK_BYTES at a time. Close it (`aclose`) when leaving early.

        Raises StorageUnavailable, not retryable, in place of the last chunk if the digest differs: so nobody takes
        other bytes for the artifact.
        """
        digest, is_whole = hashlib.sha256(), self.length == self.ref.size
        last = b""
        hashing: asyncio.Future[None] | None = None
        try:
            async with aclosing(self._ranges()) as ranges:
                async for data in ranges:
                    if hashing is not None:
                        await hashing
                    if is_whole:
                        hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, data))
                    if last:
                        yield last
                    last = data
        finally:
            if hashing is not None:
                await asyncio.gather(hashing, return_exceptions=True)
        if is_whole and digest.hexdigest() != self.ref.sha256:
            raise StorageUnavailable("the bytes stored are not those of the reference", retryable=False)
        if last:
            yield last

    async def _ranges(self) -> AsyncGenerator[bytes, None]:
        data, at, end = self._first, self.offset + len(self._first), self.offset + self.length
        under_way: deque[asyncio.Future[bytes]] = deque()
        try:
            while data or at < end:
                while at < end and len(under_way) < _RANGES_UNDER_WAY:
                    length = min(CHUNK_BYTES, end - at)
                    under_way.append(asyncio.ensure_future(self._fetch(at, length)))
                    at += length
                if data:
                    yield data
                data = await under_way.popleft() if under_way else b""
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def read(self, limit: int) -> bytes:
        """Return all bytes. Raises ArtifactTooLarge above `limit` bytes."""
        if self.length > limit:
            raise ArtifactTooLarge(f"{self.length} bytes; at most {limit} are read")
        return b"".join([chunk async for chunk in self.chunks()])


MessageT = TypeVar("MessageT", bound=Message)
HeadT = TypeVar("HeadT", bound=artifacts.HeadArtifact)

Assembled = str | bytes | list[Any] | ArtifactRef
"""The value of an assembled stream."""

OnWarning = Callable[[str], None]
"""Called with a warning about a put that has succeeded."""

_ARTIFACTS_PER_PAGE = 500
_CHUNK_ANSWER_S = 120.0
"""Seconds to wait for a chunk's reply. The last one is acknowledged when the S3 server has stored everything."""
PATIENCE_S = 60.0
"""How long a request is repeated while the store is unavailable, unless the caller says otherwise."""


class Description(TypedDict, total=False):
    """What a put says of its bytes. `own_id`: the id that its tool, the namespace, gave it."""

    namespace: str | None
    filename: str | None
    mime_type: str | None
    json_type: artifacts.JsonType | None
    items: int | None
    artifact_type: str | None
    own_id: str | None
    skill_id: str | None
    skill_name: str | None


class Wanted(TypedDict, total=False):
    """Which artifacts of a list are wanted, and which page of them: the fields of ListArtifacts."""

    namespace: str | None
    own_id: str | None
    skill_id: str | None
    limit: int
    cursor: int


class ArtifactClient:
    """Artifacts over the bus. Any number of calls at once.

    Every method raises a kind of ArtifactFailed: ArtifactNotFound, ArtifactTooLarge, ArtifactInvalid,
    StorageUnavailable.
    """

    def __init__(self, bus: Bus, *, patience_s: float = PATIENCE_S) -> None:
        self._requests = StoreRequests(bus, patience_s)

    async def put(
        self,
        tenant: str,
        data: bytes | AsyncIterable[bytes],
        *,
        session: str | None = None,
        run: str | None = None,
        user: str | None = None,
        ttl_s: int | None = None,
        artifact_id: str | None = None,
        limit: int | None = None,
        on_warning: OnWarning | None = None,
        **description: Unpack[Description],
    ) -> ArtifactRef:
        """Store bytes and return their reference.

        A stream is first copied to a temporary file, so that it can be sent again. Above `limit` bytes ArtifactTooLarge
        is raised. `artifact_id`: the id of an earlier call that may have succeeded; the same bytes then give the same
        reference. `on_warning` is called with what the caller should know although the bytes are stored.
        """
        async with source_of(data, limit) as source:
            put = _message(
                artifacts.PutArtifact,
                tenant=tenant,
                artifact_id=artifact_id or new_id(),
                size=source.size,
                sha256=await source.sha256(),
                session_id=session,
                run_id=run,
                user_id=user,
                ttl_s=ttl_s,
                **description,
            )
            if put.size > MAX_PUT_BYTES:
                ref, warning = await self._requests.until_answered(lambda: upload(self._requests, put, source))
            else:
                body, headers = await source.read(0, put.size), {artifacts.ARTIFACT_HEADER: header_value(put)}
                answer = await self._requests.until_answered(
                    lambda: self._requests.send(subjects.artifact_put(), body, headers)
                )
                ref, warning = ArtifactRef.model_validate_json(answer.data), warning_of(answer)
        if warning is not None and on_warning is not None:
            on_warning(warning)
        return ref

    async def get(
        self,
        tenant: str,
        artifact_id: str,
        *,
        session: str | None = None,
        run: str | None = None,
        offset: int = 0,
        length: int | None = None,
    ) -> Download:
        """Start to read an artifact, or `length` bytes from `offset`. A small one is complete on return."""
        request = _lookup(
            artifacts.GetArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run, offset=offset
        )
        ref, first = await self._range(request, offset, CHUNK_BYTES if length is None else min(length, CHUNK_BYTES))
        left = max(0, ref.size - offset)

        async def fetch(at: int, length: int) -> bytes:
            return (await self._range(request, at, length))[1]

        return Download(ref, offset, left if length is None else min(length, left), first, fetch)

    async def read(
        self, tenant: str, artifact_id: str, *, limit: int, session: str | None = None
    ) -> tuple[ArtifactRef, bytes]:
        """Return a complete artifact. Raises ArtifactTooLarge above `limit` bytes."""
        download = await self.get(tenant, artifact_id, session=session)
        return download.ref, await download.read(limit)

    async def _range(self, request: artifacts.GetArtifact, offset: int, length: int) -> tuple[ArtifactRef, bytes]:
        body = request.model_copy(update={"offset": offset, "length": length}).model_dump_json().encode()

        async def once() -> tuple[ArtifactRef, bytes]:
            answer = await self._requests.send(subjects.artifact_get(), body)
            ref = ArtifactRef.model_validate_json((answer.headers or {}).get(artifacts.ARTIFACT_HEADER, ""))
            if len(answer.data) != max(0, min(length, ref.size - offset)):
                raise StorageUnavailable("the artifact store sent fewer bytes than it has")
            return ref, answer.data

        return await self._requests.until_answered(once)

    async def head(
        self, tenant: str, artifact_id: str, *, session: str | None = None, run: str | None = None
    ) -> artifacts.StoredArtifact:
        """Return the metadata of an artifact."""
        request = _lookup(
            artifacts.HeadArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run
        )
        return await self._requests.answered(subjects.artifact_head(), request, artifacts.StoredArtifact)

    async def list(
        self, tenant: str, *, session: str | None = None, run: str | None = None, **wanted: Unpack[Wanted]
    ) -> artifacts.ArtifactPage:
        """Return a page of a session's or run's artifacts, the oldest first; faster with both given.

        With `own_id`: what this id of a tool names, one artifact for each tool that gave it, the newest first.
        """
        request = _message(artifacts.ListArtifacts, tenant=tenant, session_id=session, run_id=run, **wanted)
        return await self._requests.answered(subjects.artifact_list(), request, artifacts.ArtifactPage)

    async def delete_all(self, tenant: str, *, run: str | None = None, session: str | None = None) -> None:
        """Delete the artifacts and images of a run, or of a session. Idempotent."""
        cursor: int | None = 0
        while cursor is not None:
            page = await self.list(tenant, run=run, session=session, limit=_ARTIFACTS_PER_PAGE, cursor=cursor)
            for stored in page.artifacts:
                with suppress(ArtifactNotFound):  # Another client deleted it first.
                    await self.delete(tenant, stored.ref.artifact_id)
            cursor = page.next_cursor

    async def delete(
        self, tenant: str, artifact_id: str, *, session: str | None = None, run: str | None = None
    ) -> None:
        """Delete an artifact. Repeating a finished deletion raises ArtifactNotFound."""
        request = _lookup(
            artifacts.DeleteArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run
        )
        await self._requests.answered(subjects.artifact_delete(), request, artifacts.ArtifactDeleted)

    async def assemble(
        self,
        tenant: str,
        run: str,
        call_id: str,
        stream_id: str,
        *,
        pieces: int,
        artifact_id: str,
        since: int = 1,
        session: str | None = None,
        namespace: str | None = None,
    ) -> Assembled:
        """Return the value of a finished stream of `pieces` pieces, or a reference if it is large.

        `since`: the sequence in RUNS of its first piece, at the earliest. ArtifactNotFound: some pieces have expired.
        """
        request = _message(
            artifacts.AssembleStream,
            tenant=tenant,
            run_id=run,
            call_id=call_id,
            stream_id=stream_id,
            pieces=pieces,
            since=since,
            artifact_id=artifact_id,
            session_id=session,
            namespace=namespace,
        )
        found = await self._requests.answered(subjects.artifact_assemble(), request, artifacts.AssembledStream)
        if found.ref is not None:
            return found.ref
        value: Assembled = base64.b64decode(found.value) if found.json_type == "bytes" else found.value
        return value


async def upload(requests: StoreRequests, put: artifacts.PutArtifact, source: Source) -> tuple[ArtifactRef, str | None]:
    """Send the bytes in chunks, a window of them at a time, once. Return their reference and a warning, or None.

    While a chunk waits for its reply, it is checked now and then that the store still has it. Raises a kind of
    ArtifactFailed.
    """
    answer = await requests.send(subjects.artifact_open(), put.model_dump_json().encode())
    opened = artifacts.UploadOpened.model_validate_json(answer.data)
    ref, warning = opened.ref, warning_of(answer)

    async def send(seq: int, chunk: bytes) -> Msg:
        headers = {artifacts.UPLOAD_HEADER: opened.upload_id, artifacts.SEQ_HEADER: str(seq)}

        async def is_lost() -> bool:
            return await requests.is_refused(opened.subject, headers)

        return await requests.send(opened.subject, chunk, headers, wait_s=_CHUNK_ANSWER_S, is_lost=is_lost)

    under_way: deque[asyncio.Task[Msg]] = deque()
    try:
        for seq, offset in enumerate(range(0, put.size if ref is None else 0, opened.chunk_bytes)):
            if len(under_way) >= opened.window:
                await under_way[0]
                under_way.popleft()
            chunk = await source.read(offset, min(opened.chunk_bytes, put.size - offset))
            under_way.append(asyncio.create_task(send(seq, chunk)))
        while under_way:
            taken = await under_way[0]
            ref, warning = artifacts.ChunkTaken.model_validate_json(taken.data).ref, warning_of(taken)
            under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    if ref is None:
        raise StorageUnavailable("the upload ended without a reference")
    return ref, warning


def _message(kind: type[MessageT], **fields: Any) -> MessageT:
    try:
        return kind(**fields)
    except ValidationError as error:
        raise ArtifactInvalid(describe(error)) from None


def _lookup(kind: type[HeadT], **fields: Any) -> HeadT:
    """Build a request about one artifact. An invalid id or scope matches no artifact."""
    try:
        return kind(**fields)
    except ValidationError:
        raise ArtifactNotFound from None
