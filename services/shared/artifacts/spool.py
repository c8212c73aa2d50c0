"""Bytes that may have to be sent more than once: in memory as they are, or from a stream, kept in a temporary file once they are many."""

import asyncio
import hashlib
import tempfile
from typing import Protocol

_MAX_MEMORY_BYTES = 4 << 20
_INLINE_HASH_BYTES = 128 << 10
"""Hashing less than that is not worth a thread."""


class Source(Protocol):
    """Bytes of a known size."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    async def sha256(self) -> str:
        """Return their digest, in hexadecimal digits."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Return `length` of them."""
        ...


class Bytes:
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data
        self._view = memoryview(data).cast("B")

    @property
    def size(self) -> int:
        """How many there are."""
        return self._view.nbytes

    async def sha256(self) -> str:
        """Return their digest."""
        if self.size < _INLINE_HASH_BYTES:
            return hashlib.sha256(self._view).hexdigest()
        return (await asyncio.to_thread(hashlib.sha256, self._view)).hexdigest()

    async def read(self, offset: int, length: int) -> bytes:
        """Return some: a copy, unless it is all of what cannot change."""
        if type(self._data) is bytes and length == self.size:
            return self._data
        return bytes(self._view[offset : offset + length])


class Spool:
    """Bytes that come in pieces. The file has no name, so it goes with the process."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115, `close` is what its owner calls

    async def add(self, chunk: bytes) -> None:
        """Append a piece."""
        self.size += len(chunk)
        await asyncio.to_thread(self._add, chunk)

    def _add(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._file.write(chunk)

    async def sha256(self) -> str:
        """Return the digest of what has come so far."""
        return self._digest.hexdigest()

    async def read(self, offset: int, length: int) -> bytes:
        """Return some; nobody adds any more."""
        return await asyncio.to_thread(self._read, offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    async def close(self) -> None:
        """Let them go."""
        await asyncio.to_thread(self._file.close)
