"""The connection of a service to NATS as its parts use it: durable writes, whether they are stored, and the time.

Rule 1: a durable write returns its sequence, or raises Refused (the server rejected it) or Unsure (it may or may not be
stored). Writes that expect a sequence are in `guarded_write`.
Rule 2: with a full disk nats-server still answers reads, but does not answer writes, and it remembers the error: a
stream that failed once accepts nothing before the server is restarted. So a stream is suspected when a write has no
answer although NATS is connected, or is rejected for lack of space. A probe of our own (`probe.<stream>`, which nobody
reads and which expires) decides, at once and then every two seconds. Nothing is probed while all other writes succeed.
Rule 3: until something arrives from NATS again, a write without an answer is a problem by itself: NATS stands still.
Rule 4: NATS's clock stamps every message and fires every timer, so deadlines are measured by it alone:
`contracts.wire.names.CLOCK`, from which a service takes all its times, follows the server's clock where it differs by
more than half a second. A machine whose clock differs by more than two seconds is named, since its people and logs
believe it.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Self

import orjson
import structlog
from nats.aio.msg import Msg

from contracts.wire import keys, subjects
from contracts.wire.names import CLOCK, unix_ms
from contracts.wire.operation import CLOCK_METADATA, NOT_STORED
from contracts.wire.subject import Subject
from services.messaging.errors import FULL, GUARD_IN_FLIGHT, NO_ROOM, BusError, Refused, Unavailable, Unsure
from services.messaging.nats_connection import Body, NatsConnection, Subscription, encoded
from services.messaging.nats_patches import Headers
from services.messaging.reads import Reads
from services.runtime.settings import BusSettings
from services.runtime.tasks import cancelled, is_set_within, start_in

logger = structlog.get_logger(__name__)

_PROBE_WAIT_S, _PROBE_PAUSE_S = 1.0, 1.0
_BUSY_S = 10.0
"""How long answers may take behind other messages."""
_EXPIRES = {"Nats-TTL": "1s"}
_NO_ANSWER = "no answer to a write; is the disk of NATS full?"
_SILENT = "no answer to a write, and no message from NATS since: it stands still, or its disk is full"
_CLOCK_PAUSE_S, _CLOCK_TOLERANCE_S = 10.0, 2.0


class Storage:
    """The state of the streams that one service writes to."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._suspected: set[str] = set()
        self._problems: dict[str, str] = {}
        self._received = -1
        self._wake = asyncio.Event()

    def problems(self) -> list[str]:
        """Return why writes fail, as sentences; empty when they do not."""
        # Not even a probe has had an answer since.
        silent = self._suspected if self._connection.received == self._received else ()
        found = dict.fromkeys(silent, _SILENT) | self._problems
        return [f"{NOT_STORED}: {stream}: {reason}" for stream, reason in sorted(found.items())]

    def on_silence(self, subject: str) -> None:
        """Note a write without an answer."""
        stream = subjects.stream_of(subject)
        if stream is not None and self._connection.is_connected:
            self._received = self._connection.received
            if stream not in self._suspected:
                self._suspected.add(stream)
                self._wake.set()

    def on_refusal(self, subject: str, refusal: Refused) -> None:
        """Note a write that was rejected."""
        if refusal.code in NO_ROOM or "no space" in refusal.text:
            self.on_silence(subject)

    def on_stored(self, subject: str) -> None:
        """Note a write that was stored."""
        if self._suspected and (stream := subjects.stream_of(subject)) in self._suspected:
            self._settle(str(stream), None)

    async def watch(self) -> None:
        """Probe suspected streams until cancelled."""

        def on_reconnect() -> None:
            if self._suspected:
                self._wake.set()

        self._connection.on_reconnect.append(on_reconnect)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._connection.is_connected:
                await asyncio.gather(*map(self._probe, sorted(self._suspected)))
            if self._suspected:
                await is_set_within(self._wake, _PROBE_PAUSE_S)
                self._wake.set()

    async def _probe(self, stream: str) -> None:
        """Write a probe. A server that does not answer it although it answers a later read does not store."""
        probe = asyncio.create_task(self._connection.request(subjects.probe(stream), wait_s=_BUSY_S, headers=_EXPIRES))
        try:
            done, _ = await asyncio.wait({probe}, timeout=_PROBE_WAIT_S)
            if not done:
                # Behind a flood of other messages both answers are late.
                await self._connection.api(f"STREAM.INFO.{stream}", {}, _BUSY_S)
            answer = await asyncio.wait_for(probe, _PROBE_WAIT_S)
        except TimeoutError:
            self._settle(stream, _NO_ANSWER)
            return
        except BusError:
            return
        finally:
            await cancelled(probe)
        error = orjson.loads(answer.data).get("error") or {}
        # A queue at its own limit still works; its writers get the error.
        full = error.get("err_code") == FULL and "no space" not in error.get("description", "")
        self._settle(stream, None if not error or full else str(error.get("description")))

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


class Acknowledged(NamedTuple):
    """The server's answer to a write. `is_repeated`: its message id was known, and nothing new was stored."""

    sequence: int
    is_repeated: bool


class ServerClock:
    """Lets `CLOCK` follow the server's clock."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self.about = {CLOCK_METADATA: ""}
        """The metadata of the service's announcement, in which the warning is kept up to date."""

    async def read(self) -> None:
        """Compare the clocks. Raises BusError."""
        asked = unix_ms()
        answer = await self._connection.api(f"STREAM.INFO.{subjects.bucket_stream(keys.CATALOGUE_BUCKET)}", {})
        CLOCK.follow(int(unix_seconds(answer["ts"]) * 1000), asked)

    async def watch(self) -> None:
        """Compare them every ten seconds and after each reconnect, maybe to another server, until cancelled."""
        again = asyncio.Event()
        self._connection.on_reconnect.append(again.set)
        while True:
            with suppress(BusError):
                await self.read()
            if (warning := self.warning()) and not self.about[CLOCK_METADATA]:
                logger.warning("clock_differs", finding=warning)
            self.about[CLOCK_METADATA] = warning
            await is_set_within(again, _CLOCK_PAUSE_S)
            again.clear()

    def warning(self) -> str:
        """Return how far the machine's clock is off, as a sentence; empty: it is right."""
        ahead_s = time.time() - unix_ms() / 1000
        if abs(ahead_s) <= _CLOCK_TOLERANCE_S:
            return ""
        side = "ahead of" if ahead_s > 0 else "behind"
        return f"the clock of this machine is {abs(ahead_s):,.1f} s {side} that of NATS, which counts: set one of them"


def unix_seconds(text: str) -> float:
    """Parse a time as NATS writes it, `2026-11-22T10:39:38.587724217Z`."""
    return datetime.fromisoformat(text).timestamp()


class Bus(Reads):
    """All that a service does with NATS."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.storage = Storage(self)
        self.clock = ServerClock(self)

    async def publish(self, subject: str, data: Body, headers: Headers = None, wait_s: float = 2.0) -> int:
        """Write one message to the stream of `subject`, and return its sequence. Raises as `publish_acknowledged`."""
        return (await self.publish_acknowledged(subject, encoded(data), headers, wait_s)).sequence

    async def publish_acknowledged(
        self, subject: str, data: bytes, headers: Headers = None, wait_s: float = 2.0
    ) -> Acknowledged:
        """Write one message to the stream of `subject`.

        Raises Refused when the server rejected it; Unsure without an answer, without a stream, or during another
        guarded write.
        """
        try:
            answer = await self.request(subject, data, wait_s, headers)
        except Unavailable as error:
            self.storage.on_silence(subject)
            raise Unsure(str(error)) from error
        body = orjson.loads(answer.data)
        if (error_body := body.get("error")) is not None:
            if error_body.get("err_code") == GUARD_IN_FLIGHT:
                raise Unsure(error_body.get("description", ""))
            refusal = Refused(error_body.get("err_code", 0), error_body.get("description", ""))
            self.storage.on_refusal(subject, refusal)
            raise refusal
        self.storage.on_stored(subject)
        return Acknowledged(int(body["seq"]), bool(body.get("duplicate")))

    async def publish_surely(self, subject: str, data: Body, message_id: str, headers: Headers = None) -> int:
        """Write a message without a guard, repeated under its message id until it is stored. Raises Refused."""
        headers = {**(headers or {}), "Nats-Msg-Id": message_id}
        return await self.until_answered(lambda: self.publish(subject, data, headers))


class Answerer(ABC):
    """Takes requests on a subject, and answers each in a task of its own.

    A reply goes to the inbox of one of `askers` and nowhere else. What does not ask from there is dropped.
    """

    _subscription: Subscription

    def __init__(self, bus: Bus, subject: Subject, askers: Iterable[str]) -> None:
        self._bus = bus
        self._subject = subject
        self._inboxes = tuple(f"{subjects.replies_to(asker)}." for asker in askers)
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        """Take requests."""
        self._subscription = await self._bus.subscribe(self._subject(), self._on_request, self._subject.queue)
        return self

    async def stop(self) -> None:
        """Take no more requests, and leave those that are under way: who asked notices it."""
        await self._subscription.stop()
        await cancelled(*self._answering)

    async def _on_request(self, message: Msg) -> None:
        if message.reply.startswith(self._inboxes) and "Nats-Subject" not in (message.headers or {}):
            start_in(self._answering, self.answer(message))

    @abstractmethod
    async def answer(self, message: Msg) -> None:
        """Answer a request."""
