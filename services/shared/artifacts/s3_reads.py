"""Read objects directly from the S3 server, by presigned URLs of the artifact store.

Rule 1: direct reads are an optimisation. If one fails (ReadFailed), the caller reads through the store, and `pause`
disables direct reads for a minute.
Rule 2: a URL is a secret. It appears in no log and no error, and redirects are not followed.
Rule 3: calls block, so they run in threads. A thread is held while bytes are awaited, not while the reader is slow. A
reader that leaves does not wait for the thread, which ends at the latest after the read time-out.
Rule 4: the caller checks bytes against the reference. This module checks only their number.
"""

import asyncio
import hashlib
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError, ProtocolError

from services.messaging.connection import Bus

T = TypeVar("T")

logger = structlog.get_logger(__name__)

_THREADS = 16
_CONNECT_S, _READ_TIMEOUT_S = 2.0, 3.0
_OPEN_S = 6.0
"""Seconds until the first byte, including the name lookup, which nothing else bounds."""
_READ_S = 15.0
"""Seconds for all bytes of one `read`."""
_PAUSE_S = 60.0
_PIECE_BYTES = 1 << 20
_HASH_BLOCK_BYTES = 256 << 10
_OK, _PARTIAL = 200, 206


class ReadFailed(Exception):
    """The S3 server cannot be reached from here, or gave an unexpected answer.

    Contains no more than that: URLs are secrets.
    """


def s3_reads_of(bus: Bus) -> "S3Reads":
    """Return the reader that a service shares, so that a failure is known to all of it."""
    return bus.shared(S3Reads, lambda: S3Reads(allowed=bus.settings.artifact_direct == "auto"))


class S3Reads:
    """Direct reads of one process. Nothing starts before the first read."""

    def __init__(self, *, allowed: bool = True) -> None:
        self._allowed = allowed
        self._paused_until = 0.0
        timeout = Timeout(connect=_CONNECT_S, read=_READ_TIMEOUT_S)
        self._pool = PoolManager(num_pools=2, maxsize=_THREADS, timeout=timeout, retries=False)
        self._threads = ThreadPoolExecutor(_THREADS, "s3-read")
        weakref.finalize(self, self._pool.clear)

    @property
    def is_usable(self) -> bool:
        """Whether an attempt is worthwhile."""
        return self._allowed and time.monotonic() >= self._paused_until

    def pause(self, reason: str) -> None:
        """Disable direct reads for a minute."""
        if self.is_usable:
            logger.info("direct_reads_paused", reason=reason, seconds=_PAUSE_S)
        self._paused_until = time.monotonic() + _PAUSE_S

    async def read(self, url: str, offset: int, length: int, *, whole: bool) -> tuple[bytes, "hashlib._Hash"]:
        """Return `length` bytes from `offset`, and their SHA-256.

        `whole`: they are the complete object. Raises ReadFailed.
        """

        def work() -> tuple[bytes, "hashlib._Hash"]:
            answer = self._request(url, offset, length, whole=whole)
            try:
                digest, pieces, left = hashlib.sha256(), [], length
                while left:
                    pieces.append(_next(answer, min(left, _HASH_BLOCK_BYTES)))
                    digest.update(pieces[-1])
                    left -= len(pieces[-1])
                return b"".join(pieces), digest
            finally:
                _release(answer)

        return await self._in_thread(work, _READ_S)

    async def stream(self, url: str, offset: int, length: int) -> AsyncGenerator[bytes, None]:
        """Yield `length` bytes from `offset`, reading ahead. Close it (`aclose`). Raises ReadFailed."""
        answer = await self._in_thread(lambda: self._request(url, offset, length, whole=False), _OPEN_S, _release)
        reading: asyncio.Future[bytes] | None = None
        try:
            left, loop = length, asyncio.get_running_loop()
            while left or reading is not None:
                done = await _reply_of(asyncio.shield(reading)) if reading is not None else b""
                size = min(left, _PIECE_BYTES)
                left -= size
                reading = loop.run_in_executor(self._threads, partial(_next, answer, size)) if size else None
                if done:
                    yield done
        finally:
            if reading is None or reading.done():
                _release(answer)
            else:
                reading.add_done_callback(partial(_abandon, answer))

    def _request(self, url: str, offset: int, length: int, *, whole: bool) -> BaseHTTPResponse:
        """Request `length` bytes from `offset`; `whole`: the complete object.

        Raises ReadFailed unless exactly these will follow.
        """
        headers = {"Accept-Encoding": "identity"} | (
            {} if whole else {"Range": f"bytes={offset}-{offset + length - 1}"}
        )
        request = partial(
            self._pool.request, "GET", url, headers=headers, preload_content=False, decode_content=False, redirect=False
        )
        try:
            answer: BaseHTTPResponse = request()
        except ProtocolError:  # The server has just closed an idle connection.
            answer = request()
        sent_range = answer.headers.get("Content-Range")
        is_other = sent_range is not None and not sent_range.startswith(f"bytes {offset}-{offset + length - 1}/")
        # Of a range, rclone says 200 and the range's length.
        if (
            answer.status not in {_OK, _PARTIAL}
            or answer.length_remaining != length
            or "Content-Encoding" in answer.headers
            or is_other
        ):
            answer.close()
            raise ReadFailed("unexpected answer")
        return answer

    async def _in_thread(
        self, work: Callable[[], T], limit_s: float, undo: Callable[[T], object] = lambda _: None
    ) -> T:
        """Run a blocking call in a thread. A result that comes too late is passed to `undo`."""
        job = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            async with asyncio.timeout(limit_s):
                return await _reply_of(asyncio.shield(job))
        except TimeoutError:
            raise ReadFailed("no answer in time") from None
        finally:
            if not job.done():
                job.add_done_callback(
                    lambda late: undo(late.result()) if not late.cancelled() and late.exception() is None else None
                )


async def _reply_of(job: "asyncio.Future[T]") -> T:
    try:
        return await job
    except (HTTPError, OSError, ValueError) as error:
        raise ReadFailed(type(error).__name__) from None


def _next(answer: BaseHTTPResponse, length: int) -> bytes:
    data = answer.read(length)
    if len(data) != length:
        raise ReadFailed("fewer bytes than announced")
    return data


def _release(answer: BaseHTTPResponse) -> None:
    """Return the connection to the pool if the answer was read completely; close it otherwise."""
    if answer.length_remaining:
        answer.close()
    answer.release_conn()


def _abandon(answer: BaseHTTPResponse, reading: "asyncio.Future[bytes]") -> None:
    if not reading.cancelled():
        reading.exception()  # Marks the exception as retrieved.
    answer.close()
    answer.release_conn()
