"""Send requests to the artifact store, and repeat them while it, its S3 server or NATS is unavailable.

Rule 1: a request is repeated up to the patience of its caller, then it raises StorageUnavailable. Repetition is
harmless: every request names its artifact.
Rule 2: a request that was lost with its connection is noticed within seconds, not at the end of the wait.
Rule 3: bytes may be sent more than once, so a stream of more than 4 MiB is copied to a temporary file (`Spool`).
"""

import asyncio
import hashlib
import itertools
import json
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from nats.aio.msg import Msg

from contracts.artifacts import WARNING_HEADER
from contracts.tools.messages import REPLY_HEADER
from contracts.wire.base import Message
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.messaging.errors import NoResponders, Refused, Unavailable
from services.shared.artifacts.errors import ArtifactFailed, ArtifactTooLarge, StorageUnavailable, failure_of

_MAX_MEMORY_BYTES = 4 << 20
_INLINE_HASH_BYTES = 128 << 10
"""Fewer bytes are hashed without a thread."""


class Bytes:
    """Bytes in memory. Like a `Spool` they have a size, a digest, and can be read more than once."""

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


Source = Bytes | Spool


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


T = TypeVar("T")
MessageT = TypeVar("MessageT", bound=Message)

_ANSWER_S = 15.0
_PROBE_S = 2.0


class StoreRequests:
    """Requests to the artifact store. `patience_s`: how long one of them is repeated."""

    def __init__(self, bus: Bus, patience_s: float) -> None:
        self._bus = bus
        self._patience_s = patience_s

    async def answered(self, subject: str, message: Message, kind: type[MessageT]) -> MessageT:
        """Send a request until it is answered, and return the answer. Raises a kind of ArtifactFailed."""
        answer = await self.until_answered(lambda: self.send(subject, message.model_dump_json().encode()))
        return kind.model_validate_json(answer.data)

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` until it succeeds, fails permanently, or the patience is over."""
        until = time.monotonic() + self._patience_s
        for tried in itertools.count(1):
            try:
                return await attempt()
            except ArtifactFailed as error:
                if not error.retryable or time.monotonic() >= until:
                    raise
            await self._bus.retry_pause(tried, is_bounded=True)
        raise AssertionError

    async def send(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        wait_s: float | None = None,
        is_lost: Callable[[], Awaitable[bool]] | None = None,
    ) -> Msg:
        """Send one request. Raises the store's error, or StorageUnavailable when no reply can come."""
        since = self._bus.up_since
        request = asyncio.create_task(self._bus.request(subject, body, wait_s or _ANSWER_S, headers))
        try:
            while not (await asyncio.wait({request}, timeout=_PROBE_S))[0]:
                # Requests in flight are lost silently when the connection breaks.
                lost = self._bus.up_since != since or (is_lost is not None and await is_lost())
                if lost and not request.done():
                    raise StorageUnavailable("the request was lost on its way")
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        try:
            answer = request.result()
        except Refused as error:
            raise ArtifactTooLarge("NATS does not take messages of two megabytes: set max_payload to 8MB") from error
        except Unavailable as error:
            raise StorageUnavailable(f"the artifact store does not answer ({error})") from error
        if (answer.headers or {}).get(REPLY_HEADER) != "result":
            raise failure_of(Fault.model_validate_json(answer.data))
        return answer

    async def is_refused(self, subject: str, headers: dict[str, str]) -> bool:
        """Send a request without a body. Return whether nobody receives it, or the reply is a failure."""
        try:
            answer = await self._bus.request(subject, b"", _PROBE_S, headers)
        except NoResponders:
            return True
        except Unavailable:
            return False
        return (answer.headers or {}).get(REPLY_HEADER) != "result"


def header_value(message: Message) -> str:
    """Return a message as the value of a header: JSON in ASCII."""
    return json.dumps(message.model_dump(mode="json", exclude_none=True))


def warning_of(answer: Msg) -> str | None:
    """Return what a reply says although the put has succeeded, or None."""
    return (answer.headers or {}).get(WARNING_HEADER)
