"""Download an artifact: directly from the S3 server if it can be reached, otherwise in ranges from the store.

Any instance of the store can serve any range, so an instance that dies costs one range, which is requested again. An
interrupted direct read continues where it stopped: once with a new URL, then through the store.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from contracts.artifacts import ArtifactRef, PresignedUrl
from contracts.limits import CHUNK_BYTES
from services.shared.artifacts.errors import ArtifactTooLarge, StorageUnavailable
from services.shared.artifacts.s3_reads import ReadFailed, S3Reads

_RANGES_UNDER_WAY = 3


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the bytes after the first ones.

    `fetch` requests a range from the store, `locate` a URL to read from an offset.
    """

    fetch: Callable[[int, int], Awaitable[bytes]]
    locate: Callable[[int], Awaitable[PresignedUrl | None]]
    reads: S3Reads


@dataclass(slots=True)
class FirstBytes:
    """The first bytes.

    `digest`: their hash, if it was computed on the way; `url`: where they came from, if not from the store.
    """

    data: bytes
    digest: "hashlib._Hash | None" = None
    url: PresignedUrl | None = None


class Download:
    """An artifact, or a range of it, in transfer. `length`: the number of its bytes."""

    def __init__(self, ref: ArtifactRef, offset: int, length: int, first: FirstBytes, sources: Sources) -> None:
        self.ref = ref
        self.offset = offset
        self.length = length
        self._first = first
        self._sources = sources

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in order, at most CHUNK_BYTES at a time. Close it (`aclose`) when leaving early.

        Raises StorageUnavailable, not retryable, after the last byte if the digest differs.
        """
        known = self._first.digest
        digest = hashlib.sha256() if known is None else known.copy()
        hashing: asyncio.Future[None] | None = None
        skips = known is not None
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    if hashing is not None:
                        await hashing
                    if self.length == self.ref.size and not skips:
                        hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, piece))
                    skips = False
                    yield piece
        finally:
            if hashing is not None:
                await asyncio.gather(hashing, return_exceptions=True)
        if self.length == self.ref.size and digest.hexdigest() != self.ref.sha256:
            raise StorageUnavailable("the bytes stored are not those of the reference", retryable=False)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        at, end = self.offset + len(self._first.data), self.offset + self.length
        if self._first.url is None:
            async with aclosing(self._ranges(at, end, self._first.data)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        yield self._first.data
        async with aclosing(self._direct(at, end, self._first.url)) as pieces:
            async for piece in pieces:
                at += len(piece)
                yield piece
        async with aclosing(self._ranges(at, end)) as pieces:
            async for piece in pieces:
                yield piece

    async def _direct(self, at: int, end: int, url: PresignedUrl | None) -> AsyncGenerator[bytes, None]:
        """Yield bytes from the S3 server. Ends early if even a new URL yields none."""
        is_new = False
        while url is not None and at < end:
            start = at
            try:
                async with aclosing(self._sources.reads.stream(url.url, at, end - at)) as pieces:
                    async for piece in pieces:
                        at += len(piece)
                        yield piece
            except ReadFailed as error:
                if is_new and at == start:
                    self._sources.reads.pause(str(error))
                    return
                url, is_new = await self._sources.locate(at), True

    async def _ranges(self, at: int, end: int, data: bytes = b"") -> AsyncGenerator[bytes, None]:
        """Yield `data`, then ranges from the store from `at` on, with a window of requests in flight."""
        under_way: deque[asyncio.Future[bytes]] = deque()
        try:
            while data or at < end:
                while at < end and len(under_way) < _RANGES_UNDER_WAY:
                    length = min(CHUNK_BYTES, end - at)
                    under_way.append(asyncio.ensure_future(self._sources.fetch(at, length)))
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
