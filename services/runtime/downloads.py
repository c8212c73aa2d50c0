"""An artifact on its way from the store to whoever reads it: ranges of it, a window of them under way.

Any copy of the store answers any range, so one that dies costs no more than its range, which is asked for again.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from contracts.artifacts import CHUNK_BYTES, ArtifactRef

from .artifact_errors import ArtifactTooLarge, StorageUnavailable

_WINDOW = 3


class Download:
    """An artifact, or a range of it, on its way. `length` bytes will come."""

    def __init__(
        self, ref: ArtifactRef, offset: int, length: int, first: bytes, fetch: Callable[[int, int], Awaitable[tuple[ArtifactRef, bytes]]]
    ) -> None:
        self.ref = ref
        self.offset = offset
        self.length = length
        self._first = first
        self._fetch = fetch

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in order, at most CHUNK_BYTES at a time. Close it (`aclose`) when leaving early.

        Raises StorageUnavailable at the end, not retryable, when all bytes have come and they have another digest.
        """
        digest = hashlib.sha256()
        under_way: deque[asyncio.Future[tuple[ArtifactRef, bytes]]] = deque()
        hashing: asyncio.Future[None] | None = None
        end, at = self.offset + self.length, self.offset + len(self._first)
        data = self._first
        try:
            while data:
                while at < end and len(under_way) < _WINDOW:
                    length = min(CHUNK_BYTES, end - at)
                    under_way.append(asyncio.ensure_future(self._fetch(at, length)))
                    at += length
                if hashing is not None:
                    await hashing
                hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, data))
                yield data
                data = (await under_way.popleft())[1] if under_way else b""
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, *([hashing] if hashing is not None else []), return_exceptions=True)
        if self.length == self.ref.size and digest.hexdigest() != self.ref.sha256:
            raise StorageUnavailable("the bytes stored are not those of the reference", retryable=False)

    async def read(self, limit: int) -> bytes:
        """Return all of them. Raises ArtifactTooLarge when there are more than `limit`."""
        if self.length > limit:
            raise ArtifactTooLarge(f"{self.length} bytes; at most {limit} are read")
        return b"".join([chunk async for chunk in self.chunks()])
