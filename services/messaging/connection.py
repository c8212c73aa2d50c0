"""The connection of a service to NATS as its parts use it, and the time by the clock of NATS.

That clock stamps every message and fires every timer: deadlines are measured by it alone.

Rule 1: `contracts.wire.names.CLOCK`, from which a service takes all its times, follows the server's clock where it
differs by more than half a second. So a wrong clock of a machine ends nothing early or late.
Rule 2: a machine whose clock differs by more than two seconds is named, since its people and logs believe it.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Self

import structlog
from nats.aio.msg import Msg

from contracts.wire import keys, subjects
from contracts.wire.names import CLOCK, unix_ms
from contracts.wire.operation import CLOCK_METADATA
from contracts.wire.subject import Subject
from services.messaging.errors import BusError
from services.messaging.nats_connection import NatsConnection, Subscription
from services.messaging.reads import Reads
from services.messaging.writes import Writes
from services.runtime.settings import BusSettings
from services.runtime.tasks import cancelled, is_set_within, start_in

logger = structlog.get_logger(__name__)

_EVERY_S = 10.0
_TOLERATED_S = 2.0


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

        async def on_reconnect() -> None:
            again.set()

        self._connection.on_reconnect.append(on_reconnect)
        while True:
            with suppress(BusError):
                await self.read()
            if (warning := self.warning()) and not self.about[CLOCK_METADATA]:
                logger.warning("clock_differs", finding=warning)
            self.about[CLOCK_METADATA] = warning
            await is_set_within(again, _EVERY_S)
            again.clear()

    def warning(self) -> str:
        """Return how far the machine's clock is off, as a sentence; empty: it is right."""
        ahead_s = time.time() - unix_ms() / 1000
        if abs(ahead_s) <= _TOLERATED_S:
            return ""
        side = "ahead of" if ahead_s > 0 else "behind"
        return f"the clock of this machine is {abs(ahead_s):,.1f} s {side} that of NATS, which counts: set one of them"


def unix_seconds(text: str) -> float:
    """Parse a time as NATS writes it, `2026-11-22T10:39:38.587724217Z`."""
    return datetime.fromisoformat(text).timestamp()


class Bus(Reads, Writes):
    """All that a service does with NATS."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.clock = ServerClock(self)


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
