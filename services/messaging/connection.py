"""The connection of a service to NATS as its parts use it: requests and subscriptions, reads, writes, and the clock."""

import asyncio
from collections.abc import Iterable
from typing import Self

from nats.aio.msg import Msg

from contracts.wire import subjects
from contracts.wire.subject import Subject
from services.messaging.clock import ServerClock
from services.messaging.nats_connection import Subscription
from services.messaging.reads import Reads
from services.messaging.writes import Writes
from services.runtime.settings import BusSettings
from services.runtime.tasks import cancelled, start_in


class Bus(Reads, Writes):
    """All that a service does with NATS."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.clock = ServerClock(self)


class Answerer:
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

    async def answer(self, message: Msg) -> None:
        """Answer a request."""
        raise NotImplementedError
