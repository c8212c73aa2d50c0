"""The client of the artifact store: store artifacts and read them.

Rule 1: while the store, its S3 server or NATS is unavailable, a call retries up to its patience, then raises
StorageUnavailable. Retries are harmless: the client makes the artifact id once per put.
Rule 2: data that does not fit into one message travels in chunks, a window at a time, so no service holds all of it.
Rule 3: bytes are checked against their digest once all of them were received.
"""

import asyncio
import base64
import json
import random
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts import subjects
from contracts.artifacts import (
    ARTIFACT_HEADER,
    DIRECT_HEADER,
    SEQ_HEADER,
    UPLOAD_HEADER,
    ArtifactPage,
    ArtifactRef,
    AssembledStream,
    AssembleStream,
    ChunkTaken,
    DeleteArtifact,
    GetArtifact,
    HeadArtifact,
    JsonType,
    ListArtifacts,
    PresignArtifact,
    PresignedUrl,
    PutArtifact,
    StoredArtifact,
    UploadOpened,
)
from contracts.base import Message
from contracts.faults import Fault
from contracts.ids import new_id
from contracts.limits import CHUNK_BYTES, MAX_PUT_BYTES, MIN_DIRECT_BYTES
from contracts.tools import REPLY_HEADER
from services.messaging.connection import Bus
from services.messaging.errors import NoResponders, Refused, Unavailable
from services.shared.artifacts.downloads import Download, FirstBytes, Sources
from services.shared.artifacts.errors import (
    ArtifactFailed,
    ArtifactInvalid,
    ArtifactNotFound,
    ArtifactTooLarge,
    StorageUnavailable,
    failure_of,
)
from services.shared.artifacts.s3_reads import ReadFailed, s3_reads_of
from services.shared.artifacts.spool import Bytes, Source, Spool

__all__ = ["ArtifactClient", "Download", "header_value"]

T = TypeVar("T")
MessageT = TypeVar("MessageT", bound=Message)
HeadT = TypeVar("HeadT", bound=HeadArtifact)

Assembled = str | bytes | list[Any] | ArtifactRef
"""The value of an assembled stream."""

PATIENCE_S = 60.0
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0
_ANSWER_S = 15.0
_CHUNK_ANSWER_S = 120.0
"""Seconds to wait for a chunk's reply. The last one is acknowledged when the S3 server has stored everything."""
_PROBE_S = 2.0


class ArtifactClient:
    """Artifacts over the bus. Any number of calls at once.

    Every method raises a kind of ArtifactFailed: ArtifactNotFound, ArtifactTooLarge, ArtifactInvalid,
    StorageUnavailable.
    """

    def __init__(self, bus: Bus, *, patience_s: float = PATIENCE_S) -> None:
        self._bus = bus
        self._patience_s = patience_s

    async def put(
        self,
        tenant: str,
        data: bytes | AsyncIterable[bytes],
        *,
        session: str | None = None,
        run: str | None = None,
        namespace: str | None = None,
        filename: str | None = None,
        mime_type: str | None = None,
        json_type: JsonType | None = None,
        items: int | None = None,
        artifact_type: str | None = None,
        ttl_s: int | None = None,
        artifact_id: str | None = None,
        limit: int | None = None,
    ) -> ArtifactRef:
        """Store bytes and return their reference.

        A stream is first copied to a temporary file, so that it can be sent again; above `limit` bytes it is
        ArtifactTooLarge.
        `artifact_id`: the id of an earlier call that may have succeeded; the same bytes then give the same reference.
        """
        async with _source(data, limit) as source:
            put = _message(
                PutArtifact,
                tenant=tenant,
                artifact_id=artifact_id or new_id(),
                size=source.size,
                sha256=await source.sha256(),
                session_id=session,
                run_id=run,
                namespace=namespace,
                filename=filename,
                mime_type=mime_type,
                json_type=json_type,
                items=items,
                artifact_type=artifact_type,
                ttl_s=ttl_s,
            )
            if put.size <= MAX_PUT_BYTES:
                body, headers = await source.read(0, put.size), {ARTIFACT_HEADER: header_value(put)}
                answer = await self._until_answered(lambda: self._request(subjects.ARTIFACT_PUT, body, headers))
                return ArtifactRef.model_validate_json(answer.data)
            return await self._until_answered(lambda: self._upload(put, source))

    async def _upload(self, put: PutArtifact, source: Source) -> ArtifactRef:
        """Send the bytes from the beginning, once."""
        answer = await self._request(subjects.ARTIFACT_OPEN, put.model_dump_json().encode())
        opened = UploadOpened.model_validate_json(answer.data)
        ref = opened.ref
        under_way: deque[asyncio.Task[ChunkTaken]] = deque()
        try:
            for seq, offset in enumerate(range(0, put.size if ref is None else 0, opened.chunk_bytes)):
                if len(under_way) >= opened.window:
                    await under_way[0]
                    under_way.popleft()
                chunk = await source.read(offset, min(opened.chunk_bytes, put.size - offset))
                under_way.append(asyncio.create_task(self._send(opened, seq, chunk)))
            while under_way:
                ref = (await under_way[0]).ref
                under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        if ref is None:
            raise StorageUnavailable("the upload ended without a reference")
        return ref

    async def _send(self, opened: UploadOpened, seq: int, chunk: bytes) -> ChunkTaken:
        """Send one chunk. While waiting for its reply, ask now and then whether the store still has it."""
        headers = {UPLOAD_HEADER: opened.upload_id, SEQ_HEADER: str(seq)}

        async def is_lost() -> bool:
            try:
                answer = await self._bus.request(opened.subject, b"", _PROBE_S, headers)
            except NoResponders:
                return True
            except Unavailable:
                return False
            return (answer.headers or {}).get(REPLY_HEADER) != "result"

        answer = await self._request(opened.subject, chunk, headers, wait_s=_CHUNK_ANSWER_S, is_lost=is_lost)
        return ChunkTaken.model_validate_json(answer.data)

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
        asked = _lookup(
            GetArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run, offset=offset
        )
        asked = asked.model_copy(update={"direct": length is None or length >= MIN_DIRECT_BYTES})
        ref, found = await self._range(asked, offset, CHUNK_BYTES if length is None else min(length, CHUNK_BYTES))
        left = max(0, ref.size - offset)
        length = left if length is None else min(length, left)
        return Download(ref, offset, length, await self._first(asked, ref, found, length), self._sources(asked))

    async def _first(
        self, asked: GetArtifact, ref: ArtifactRef, found: bytes | PresignedUrl, length: int
    ) -> FirstBytes:
        """Return the first bytes: those that the store sent, or those behind the URL that it sent."""
        if isinstance(found, bytes):
            return FirstBytes(found)
        reads, length = s3_reads_of(self._bus), min(length, CHUNK_BYTES)
        whole = length == ref.size
        try:
            data, digest = await reads.read(found.url, asked.offset, length, whole=whole)
            if not whole or digest.hexdigest() == ref.sha256:
                return FirstBytes(data, digest, found)
            reads.pause("other bytes were sent")
        except ReadFailed as error:
            reads.pause(str(error))
        return FirstBytes(await self._sources(asked).fetch(asked.offset, length))

    def _sources(self, asked: GetArtifact) -> Sources:
        by_store = asked.model_copy(update={"direct": False})

        async def fetch(at: int, length: int) -> bytes:
            found = (await self._range(by_store, at, length))[1]
            if not isinstance(found, bytes):
                raise StorageUnavailable("the artifact store sent no bytes")
            return found

        async def locate(at: int) -> PresignedUrl | None:
            found = (await self._range(asked, at, 0))[1]
            return found if isinstance(found, PresignedUrl) else None

        return Sources(fetch, locate, s3_reads_of(self._bus))

    async def read(
        self, tenant: str, artifact_id: str, *, limit: int, session: str | None = None
    ) -> tuple[ArtifactRef, bytes]:
        """Return a complete artifact. Raises ArtifactTooLarge above `limit` bytes."""
        download = await self.get(tenant, artifact_id, session=session)
        return download.ref, await download.read(limit)

    async def _range(self, asked: GetArtifact, offset: int, length: int) -> tuple[ArtifactRef, bytes | PresignedUrl]:
        direct = asked.direct and s3_reads_of(self._bus).is_usable
        body = (
            asked.model_copy(update={"offset": offset, "length": length, "direct": direct}).model_dump_json().encode()
        )

        async def once() -> tuple[ArtifactRef, bytes | PresignedUrl]:
            answer = await self._request(subjects.ARTIFACT_GET, body)
            ref = ArtifactRef.model_validate_json((answer.headers or {}).get(ARTIFACT_HEADER, ""))
            if direct and DIRECT_HEADER in (answer.headers or {}):
                return ref, PresignedUrl.model_validate_json(answer.data)
            if len(answer.data) != max(0, min(length, ref.size - offset)):
                raise StorageUnavailable("the artifact store sent fewer bytes than it has")
            return ref, answer.data

        return await self._until_answered(once)

    async def head(
        self, tenant: str, artifact_id: str, *, session: str | None = None, run: str | None = None
    ) -> StoredArtifact:
        """Return the metadata of an artifact."""
        asked = _lookup(HeadArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run)
        return await self._answered(subjects.ARTIFACT_HEAD, asked, StoredArtifact)

    async def list(
        self,
        tenant: str,
        *,
        session: str | None = None,
        run: str | None = None,
        namespace: str | None = None,
        limit: int = 100,
        cursor: int = 0,
    ) -> ArtifactPage:
        """Return a page of a session's or run's artifacts, the oldest first; faster with both given."""
        asked = ListArtifacts(
            tenant=tenant, session_id=session, run_id=run, namespace=namespace, limit=limit, cursor=cursor
        )
        return await self._answered(subjects.ARTIFACT_LIST, asked, ArtifactPage)

    async def delete(
        self, tenant: str, artifact_id: str, *, session: str | None = None, run: str | None = None
    ) -> None:
        """Delete an artifact. Repeating a finished deletion raises ArtifactNotFound."""
        asked = _lookup(DeleteArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, run_id=run)
        await self._until_answered(lambda: self._request(subjects.ARTIFACT_DELETE, asked.model_dump_json().encode()))

    async def presign(
        self, tenant: str, artifact_id: str, *, expires_s: int = 300, session: str | None = None
    ) -> PresignedUrl:
        """Return a URL of the S3 server, for callers that can reach that server."""
        asked = _lookup(
            PresignArtifact, tenant=tenant, artifact_id=artifact_id, session_id=session, expires_s=expires_s
        )
        return await self._answered(subjects.ARTIFACT_PRESIGN, asked, PresignedUrl)

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
        asked = _message(
            AssembleStream,
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
        found = await self._answered(subjects.ARTIFACT_ASSEMBLE, asked, AssembledStream)
        if found.ref is not None:
            return found.ref
        value: Assembled = base64.b64decode(found.value) if found.json_type == "bytes" else found.value
        return value

    async def _answered(self, subject: str, asked: Message, kind: type[MessageT]) -> MessageT:
        answer = await self._until_answered(lambda: self._request(subject, asked.model_dump_json().encode()))
        return kind.model_validate_json(answer.data)

    async def _until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until it succeeds, fails permanently, or patience is over."""
        until, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except ArtifactFailed as error:
                if not error.retryable or time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311, a spread, not a secret
            pause = min(2 * pause, _MAX_PAUSE_S)

    async def _request(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        wait_s: float = _ANSWER_S,
        is_lost: Callable[[], Awaitable[bool]] | None = None,
    ) -> Msg:
        """Send one request. Raises the store's error, or StorageUnavailable when no reply can come."""
        since = self._bus.up_since
        request = asyncio.create_task(self._send_request(subject, body, headers, wait_s))
        try:
            while not (await asyncio.wait({request}, timeout=_PROBE_S))[0]:
                # Requests in flight are lost silently when the connection breaks.
                lost = self._bus.up_since != since or (is_lost is not None and await is_lost())
                if lost and not request.done():
                    raise StorageUnavailable("the request was lost on its way")
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        answer = request.result()
        if (answer.headers or {}).get(REPLY_HEADER) != "result":
            raise failure_of(Fault.model_validate_json(answer.data))
        return answer

    async def _send_request(self, subject: str, body: bytes, headers: dict[str, str] | None, wait_s: float) -> Msg:
        try:
            return await self._bus.request(subject, body, wait_s, headers)
        except Refused as error:
            raise ArtifactTooLarge("NATS does not take messages of two megabytes: set max_payload to 8MB") from error
        except Unavailable as error:
            raise StorageUnavailable(f"the artifact store does not answer ({error})") from error


@asynccontextmanager
async def _source(data: bytes | AsyncIterable[bytes], limit: int | None) -> AsyncIterator[Source]:
    if isinstance(data, bytes | bytearray | memoryview):
        if limit is not None and len(data) > limit:
            raise ArtifactTooLarge(f"{len(data)} bytes; at most {limit} are kept")
        yield Bytes(data)
        return
    spool = Spool()
    try:
        async for chunk in data:
            await spool.add(chunk)
            if limit is not None and spool.size > limit:
                raise ArtifactTooLarge(f"more than {limit} bytes")
        yield spool
    finally:
        await spool.close()


def _message(kind: type[MessageT], **fields: Any) -> MessageT:
    try:
        return kind(**fields)
    except ValidationError as error:
        wrong = sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]})
        raise ArtifactInvalid(f"not well-formed: {', '.join(wrong)}") from None


def _lookup(kind: type[HeadT], **fields: Any) -> HeadT:
    """Build a request about one artifact. An invalid id or scope matches no artifact."""
    try:
        return kind(**fields)
    except ValidationError:
        raise ArtifactNotFound from None


def header_value(message: Message) -> str:
    """Return a message as the value of a header: JSON in ASCII."""
    return json.dumps(message.model_dump(mode="json", exclude_none=True))
