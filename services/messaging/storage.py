"""Notice that NATS does not store what it is given, and that it does again.

With a full disk nats-server goes on answering reads and gives writes no answer, and it remembers the error: a stream that failed once takes
nothing before the server is started again, however much room there is by then.

Rule 1: a stream is suspected once a write to it had no answer although the connection stands, or was refused for want of room. A write of
our own (`probe.<stream>`, which nobody reads and which is removed again) settles it, at once and then every two seconds.
Rule 2: nothing is written by way of trial while all other writes succeed.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import orjson
import structlog
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.health import NOT_STORED
from services.messaging.errors import FULL, NO_ROOM, BusError, Refused, Unavailable

if TYPE_CHECKING:
    from services.messaging.connection import Bus

logger = structlog.get_logger(__name__)

_PROBE_WAIT_S, _PROBE_PAUSE_S = 1.0, 1.0
_NO_ANSWER = "no answer to a write; is the disk of NATS full?"


class Storage:
    """What is known of the streams that one service writes to."""

    def __init__(self, bus: "Bus") -> None:
        self._bus = bus
        self._suspected: set[str] = set()
        self._problems: dict[str, str] = {}
        self._wake = asyncio.Event()

    def problems(self) -> list[str]:
        """Return why writes fail, in words; empty when they do not."""
        return [f"{NOT_STORED}: {stream}: {reason}" for stream, reason in sorted(self._problems.items())]

    def on_silence(self, subject: str) -> None:
        """A write had no answer."""
        stream = subjects.stream_of(subject)
        if stream is not None and self._bus.is_connected and stream not in self._suspected:
            self._suspected.add(stream)
            self._wake.set()

    def on_refusal(self, subject: str, refusal: Refused) -> None:
        """A write was refused."""
        if refusal.code in NO_ROOM or "no space" in refusal.text:
            self.on_silence(subject)

    def on_stored(self, subject: str) -> None:
        """A write was stored."""
        if self._suspected and (stream := subjects.stream_of(subject)) in self._suspected:
            self._settle(str(stream), None)

    async def watch(self) -> None:
        """Try the streams that are suspected, until cancelled."""
        self._bus.on_reconnect.append(self._on_reconnect)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._bus.is_connected:
                await asyncio.gather(*map(self._probe, sorted(self._suspected)))
            if self._suspected:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PROBE_PAUSE_S):
                        await self._wake.wait()
                self._wake.set()

    async def _on_reconnect(self) -> None:
        if self._suspected:
            self._wake.set()

    async def _probe(self, stream: str) -> None:
        subject = subjects.probe(stream)
        await self._remove(stream, subject)
        try:
            answer = await self._bus.request(subject, wait_s=_PROBE_WAIT_S)
        except (NatsError, TimeoutError, ConnectionError, OSError, Unavailable):
            if self._bus.is_connected:
                self._settle(stream, _NO_ANSWER)
            return
        error = orjson.loads(answer.data).get("error") or {}
        # A queue that has reached its own limit stores what it has; that is another matter, which its writers are told.
        full = error.get("err_code") == FULL and "no space" not in error.get("description", "")
        self._settle(stream, None if not error or full else str(error.get("description")))
        await self._remove(stream, subject)

    async def _remove(self, stream: str, subject: str) -> None:
        with contextlib.suppress(BusError):
            await self._bus.api(f"STREAM.PURGE.{stream}", {"filter": subject}, _PROBE_WAIT_S)

    def _settle(self, stream: str, problem: str | None) -> None:
        known = self._problems.get(stream)
        if problem is None:
            self._suspected.discard(stream)
            self._problems.pop(stream, None)
            if known is not None:
                logger.info("stream_stores_again", stream=stream)
        else:
            self._problems[stream] = problem
            if known is None:
                logger.error("stream_does_not_store", stream=stream, reason=problem)
