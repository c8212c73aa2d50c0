"""Read objects from the S3 server itself, by presigned URLs: what the artifact store vouches for, without the way through it.

Rule 1: it is a short cut and never needed. Where it fails (ReadFailed) the caller goes through the store, and `pause` spares everybody
the attempt for a minute.
Rule 2: a URL is a secret. It stands in no log and no error, and no redirection is followed.
Rule 3: calls block, so they run in threads; one is held while bytes are awaited, not while a reader takes its time.
Rule 4: bytes are the caller's to check against the reference. Here only their number is.
"""

import asyncio
import hashlib
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import urlsplit

import structlog

from .s3_line import Line, ReadFailed

__all__ = ["ReadFailed", "S3Reads"]

T = TypeVar("T")

logger = structlog.get_logger(__name__)

_THREADS = 16
_KEPT, _KEPT_S = 16, 20.0
"""Connections without work that are kept, and for how long: servers close them sooner or later."""
_REACHED_S = 2.0
"""A connection takes no longer than that, the search for the server's address included."""
_PAUSE_S = 60.0
_PIECE = 1 << 20
_HASHED_AT_ONCE = 256 << 10


class S3Reads:
    """The way from one process to the S3 server. Nothing starts before the first read."""

    def __init__(self, *, allowed: bool = True) -> None:
        self._allowed = allowed
        self._paused_until = 0.0
        self._idle: deque[Line] = deque()
        self._threads = ThreadPoolExecutor(_THREADS, "s3-read")
        weakref.finalize(self, _close_all, self._idle)

    @property
    def is_usable(self) -> bool:
        """Whether it is worth an attempt."""
        return self._allowed and time.monotonic() >= self._paused_until

    def pause(self, reason: str) -> None:
        """Nobody need try for a minute."""
        if self.is_usable:
            logger.info("direct_reads_paused", reason=reason, seconds=_PAUSE_S)
        self._paused_until = time.monotonic() + _PAUSE_S

    async def read(self, url: str, offset: int, length: int, *, whole: bool) -> tuple[bytes, "hashlib._Hash"]:
        """Return `length` bytes from `offset` on, and their SHA-256 so far. `whole`: there are no others. Raises ReadFailed."""
        line, target = self._line(url)

        def work() -> tuple[bytes, "hashlib._Hash"]:
            line.ask(target, offset, length, whole=whole)
            digest, pieces, left = hashlib.sha256(), [], length
            while left:
                pieces.append(line.read(min(left, _HASHED_AT_ONCE)))
                digest.update(pieces[-1])
                left -= len(pieces[-1])
            return b"".join(pieces), digest

        try:
            return await self._in_thread(line, work)
        finally:
            self._let_go(line)

    async def stream(self, url: str, offset: int, length: int) -> AsyncGenerator[bytes, None]:
        """Yield `length` bytes from `offset` on, the next ones being read meanwhile. Close it (`aclose`). Raises ReadFailed."""
        line, target = self._line(url)
        reading: asyncio.Task[bytes] | None = None
        try:
            await self._in_thread(line, lambda: line.ask(target, offset, length, whole=False))
            left = length
            while left or reading is not None:
                done = await reading if reading is not None else b""
                size = min(left, _PIECE)
                left -= size
                reading = asyncio.create_task(self._in_thread(line, partial(line.read, size))) if size else None
                if done:
                    yield done
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            self._let_go(line)

    def _line(self, url: str) -> tuple[Line, str]:
        """Return a connection to the server of a URL, if possible one that is there, and what to ask it for."""
        parts = urlsplit(url)
        origin, fresh = (parts.scheme, parts.netloc), time.monotonic() - _KEPT_S
        while self._idle:
            line = self._idle.pop()
            if line.origin == origin and line.used_at > fresh:
                return line, f"{parts.path}?{parts.query}"
            line.close()
        return Line(origin), f"{parts.path}?{parts.query}"

    def _let_go(self, line: Line) -> None:
        if line.is_busy:  # Its thread closes it.
            return
        if line.is_done and len(self._idle) < _KEPT:
            line.used_at = time.monotonic()
            self._idle.append(line)
        else:
            line.close()

    async def _in_thread(self, line: Line, work: Callable[[], T]) -> T:
        """Do what blocks. Whoever does not wait for its end leaves the connection to the thread."""
        job = asyncio.get_running_loop().run_in_executor(self._threads, line.busy(work))
        try:
            if not (await asyncio.wait({job}, timeout=_REACHED_S))[0]:
                if not line.is_open:
                    raise ReadFailed("no connection")
                await asyncio.wait({job})
            return job.result()
        except (OSError, HTTPException, ValueError) as error:
            raise ReadFailed(type(error).__name__) from None
        finally:
            if not job.done():
                job.add_done_callback(_heard)
                line.abandon()


def _heard(job: "asyncio.Future[T]") -> None:
    if not job.cancelled():
        job.exception()


def _close_all(lines: deque[Line]) -> None:
    while lines:
        lines.pop().close()
