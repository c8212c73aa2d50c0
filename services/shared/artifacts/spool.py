"""Bytes that may be sent more than once. A stream of more than 4 MiB is copied to a temporary file."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from services.shared.artifacts.errors import ArtifactTooLarge

_MAX_MEMORY_BYTES = 4 << 20
_INLINE_HASH_BYTES = 128 << 10
"""Fewer bytes are hashed without a thread."""


class Source(Protocol):
    """Bytes of a known size."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    async def sha256(self) -> str:
        """Return their digest in hexadecimal."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`."""
        ...


class Bytes:
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data
        self._view = memoryview(data).cast("B")

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._view.nbytes

    async def sha256(self) -> str:
        """Return their digest."""
        if self.size < _INLINE_HASH_BYTES:
            return hashlib.sha256(self._view).hexdigest()
        return (await asyncio.to_thread(hashlib.sha256, self._view)).hexdigest()

    async def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`: a copy, unless they are all of an immutable object."""
        if type(self._data) is bytes and length == self.size:
            return self._data
        return bytes(self._view[offset : offset + length])


class Spool:
    """Bytes that arrive in chunks. The file has no name, so it disappears with the process."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        # `close` is what its owner calls.
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115

    async def add(self, chunk: bytes) -> None:
        """Append a chunk."""

        def append() -> None:
            self._digest.update(chunk)
            self._file.write(chunk)

        self.size += len(chunk)
        await asyncio.to_thread(append)

    async def sha256(self) -> str:
        """Return the digest of the bytes so far."""
        return self._digest.hexdigest()

    async def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`. Call it after the last `add`."""

        def read() -> bytes:
            self._file.seek(offset)
            return self._file.read(length)

        return await asyncio.to_thread(read)

    async def close(self) -> None:
        """Delete the bytes."""
        await asyncio.to_thread(self._file.close)


@asynccontextmanager
async def source_of(data: bytes | AsyncIterable[bytes], limit: int | None) -> AsyncIterator[Source]:
    """Yield the bytes of an artifact as a Source; a stream is spooled first. Raises ArtifactTooLarge above `limit`."""
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
