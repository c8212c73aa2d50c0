"""Download an artifact in ranges from the store, a window of them in flight.

Any instance of the store can serve any range, so an instance that dies costs one range, which is requested again.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from contracts.artifacts.references import ArtifactRef
from contracts.wire.limits import CHUNK_BYTES
from services.shared.artifacts.errors import ArtifactTooLarge, StorageUnavailable

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
