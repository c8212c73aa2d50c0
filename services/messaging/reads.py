"""Reads of stored messages: the newest of a subject, one of the stream's leader, or all of one exact subject.

The last are batched direct gets (NATS ADR-31): no consumer, no state on the server. Only exact subjects: a wildcard
takes 20 ms instead of 0.16 ms at a million messages. There is no flow control, so pages are bounded.
"""

import asyncio
import base64
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import count
from typing import Any

import orjson
import structlog
from nats.aio.msg import Msg

from contracts.wire import subjects
from contracts.wire.names import InvalidName
from services.messaging.errors import NATS_ERRORS, NOT_FOUND, Refused, Unavailable, translated
from services.messaging.nats_connection import NatsConnection
from services.messaging.nats_patches import FORGED, expire
from services.runtime.settings import BusSettings

logger = structlog.get_logger(__name__)

_PAGE_MESSAGES = 1000
_PAGE_BYTES = 4 << 20
_PAGE_WAIT_S = 2.0
_MAX_CATCH_UPS = 4

StoredMessage = tuple[int, bytes]
"""Stream sequence and body."""


class Reads(NatsConnection):
    """A connection that reads."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.catch_ups = asyncio.Semaphore(_MAX_CATCH_UPS)
        """Bounds the followers that read back stored messages at once, since other requests of this connection wait
        behind them."""
        self._readers: dict[str, DirectReader] = {}

    async def last(self, stream: str, subject: str, attempts: int | None = None) -> Msg | None:
        """Return the newest message of an exact subject, or None. Retries; raises Unavailable after `attempts`."""
        found = await self.until_answered(lambda: self.request(subjects.direct_last(stream, subject)), attempts)
        return checked(found) if sequence_of(found) else None  # Without a sequence it is the server's 404.

    async def last_from_leader(self, stream: str, subject: str, attempts: int | None = None) -> StoredMessage | None:
        """Return what `last` returns, but as the stream's leader has it. Also raises Refused."""
        return await self.until_answered(lambda: self.get_from_leader(stream, {"last_by_subj": subject}), attempts)

    async def get_from_leader(self, stream: str, which: dict[str, Any], wait_s: float = 5.0) -> StoredMessage | None:
        """Return a message as the stream's leader has it, None without one. Raises Unavailable, Refused.

        `which`: as JetStream takes it, `{"last_by_subj": subject}` or `{"seq": n}`, also with `next_by_subj`.
        """
        try:
            found = (await self.api(f"STREAM.MSG.GET.{stream}", which, wait_s))["message"]
        except Refused as error:
            if error.code in NOT_FOUND:
                return None
            raise
        # The leader shows headers as they are stored: one of its own shows a forged message (`nats_patches`).
        is_forged = b"Nats-Subject:" in base64.b64decode(found.get("hdrs", ""))
        return int(found["seq"]), b"" if is_forged else base64.b64decode(found.get("data", ""))

    async def subjects_in(self, stream: str, pattern: str) -> list[str]:
        """Return all subjects of a stream's messages that match, however many. Raises Refused, Unavailable."""
        found: list[str] = []
        while True:
            answer = await self.api(f"STREAM.INFO.{stream}", {"subjects_filter": pattern, "offset": len(found)})
            part = answer["state"].get("subjects") or {}
            found += part
            if not part or len(found) >= answer.get("total", 0):
                return found

    async def barrier(self) -> None:
        """Return once the server has processed everything sent before; `flush` does not include subscriptions."""
        await self.last(subjects.RUNS, "barrier")

    async def reader(self, stream: str) -> "DirectReader":
        """Return the batched direct reader of a stream; one per stream and connection."""
        if stream not in self._readers:
            found = self._readers[stream] = await DirectReader(self, stream).start()
            self.on_disconnect.append(found.connection_lost)
        return self._readers[stream]


class DirectReader:
    """Reads one stream over one connection; any number of reads at once."""

    def __init__(self, bus: "Reads", stream: str) -> None:
        self._bus = bus
        self._stream = stream
        self._api = subjects.direct_get(stream)
        self._inbox = bus.nc.new_inbox()
        self._cut = len(self._inbox) + 1
        self._numbers = count(1)
        self._waiting: dict[str, tuple[list[Msg], asyncio.Future[dict[str, str]]]] = {}

    async def start(self) -> "DirectReader":
        """Subscribe to replies."""
        await self._bus.subscribe(f"{self._inbox}.*", self._on_message)
        return self

    async def _on_message(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject[self._cut :])
        if waiting is None:
            return
        messages, ended = waiting
        # The end is an empty message with a status; a stored message has a sequence, whatever else it has.
        if not message.data and message.headers and "Status" in message.headers and not sequence_of(message):
            if not ended.done():
                ended.set_result(message.headers)
        else:
            messages.append(checked(message))

    def connection_lost(self) -> None:
        """End all waits: the rest of a page never arrives once its connection is lost."""
        for _, ended in self._waiting.values():
            expire(ended)

    async def page(
        self, subject: str, start: int, size: int = _PAGE_MESSAGES, *, max_bytes: int = _PAGE_BYTES
    ) -> tuple[list[Msg], int]:
        """Return up to `size` messages of `subject` from sequence `start` on, and how many more there are.

        Raises Unavailable.

        The page ends with the message that exceeds `max_bytes`, so it is empty only when there are no messages.
        """
        return await self._request({"batch": size, "seq": start, "next_by_subj": subject, "max_bytes": max_bytes})

    async def since(self, subject: str, at_ns: int) -> list[Msg]:
        """Return every message on `subject` stored at Unix time `at_ns` or later. Retries until the server answers."""
        seconds, fraction = divmod(at_ns, 1_000_000_000)
        moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"
        body = {"batch": _PAGE_MESSAGES, "start_time": moment, "next_by_subj": subject, "max_bytes": _PAGE_BYTES}
        page, pending = await self._bus.until_answered(lambda: self._request(body))
        return page + await self.messages(subject, sequence_of(page[-1]) + 1) if page and pending else page

    async def latest(self, *patterns: str) -> list[Msg]:
        """Return the newest message of each subject that matches a pattern, at most 1,024 messages. Raises Unavailable.

        For small buckets. The headers contain `Nats-Subject`, and `Nats-Marker-Reason` or `KV-Operation` for a deleted
        value.
        """
        return (await self._request({"multi_last": list(patterns)}))[0]

    async def _request(self, body: dict[str, Any]) -> tuple[list[Msg], int]:
        key = str(next(self._numbers))
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[dict[str, str]] = loop.create_future()
        messages: list[Msg] = []
        self._waiting[key] = (messages, ended)
        timer = loop.call_later(_PAGE_WAIT_S, expire, ended)
        try:
            await self._bus.nc.publish(self._api, orjson.dumps(body), reply=f"{self._inbox}.{key}")
            end = await ended
        except NATS_ERRORS as error:
            raise translated(error) from error
        finally:
            timer.cancel()
            del self._waiting[key]
        if end["Status"] == "404":
            return [], 0
        if end["Status"] != "204":
            raise Unavailable(f"direct get ended with status {end['Status']}")
        return messages, int(end["Nats-Num-Pending"])

    async def messages(self, subject: str, start: int = 1, *, attempts: int | None = None) -> list[Msg]:
        """Return all messages on `subject` from sequence `start` on. Retries; raises Unavailable after `attempts`."""
        found: list[Msg] = []
        while True:
            after = sequence_of(found[-1]) if found else start - 1
            page, pending = await self._bus.until_answered(partial(self.page, subject, after + 1), attempts)
            found += page
            if not page or not pending:
                return found

    async def current(self, subject: str, start: int = 1, *, attempts: int | None = None) -> list[Msg]:
        """Return what `messages` returns, but as the stream's leader has it: a replica may lag behind."""
        for tried in count(1):
            newest = await self._bus.last_from_leader(self._stream, subject, attempts)
            if newest is None or newest[0] < start:
                return []
            found = await self.messages(subject, start, attempts=attempts)
            if found and sequence_of(found[-1]) >= newest[0]:
                return found
            if tried == attempts:
                raise Unavailable("a replica lags behind")
            await self._bus.retry_pause(tried)
        raise AssertionError

    async def read(self, subject: str, start: int = 1, *, attempts: int | None = None) -> list[StoredMessage]:
        """Return sequence and body of every message on `subject` from sequence `start` on, as `messages` does."""
        return [
            (sequence_of(message), message.data) for message in await self.messages(subject, start, attempts=attempts)
        ]


def checked(message: Msg) -> Msg:
    """Empty a forged message that was read back or republished: only its place in the stream counts. Log it once."""
    if message.headers and FORGED in message.headers:
        message.data = b""
        _log_forged(message.headers.get("Nats-Subject", message.subject), sequence_of(message))
    return message


@lru_cache(maxsize=1024)
def _log_forged(subject: str, sequence: int) -> None:
    run_id = None
    with suppress(InvalidName):
        run_id = subjects.parse(subject).run
    logger.error("forged_message_ignored", subject=subject, sequence=sequence, run_id=run_id)


def sequence_of(message: Msg) -> int:
    """Return the stream sequence of a message that was read back or republished; 0 for any other."""
    return int((message.headers or {}).get("Nats-Sequence", 0))
