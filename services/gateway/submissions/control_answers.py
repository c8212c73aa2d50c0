"""Receive what planners answer to decisions and inputs.

The answer is an event on the run's stream, or the fact on its log that the request led to. Both are received live, so
the gateway subscribes before it sends the request. Requests to one run share a subscription: of 10,000 that are sent at
once, each would else receive the answers to all.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from contracts import subjects
from contracts.events import ControlAnswered, InputAdded, Resumed, RunEvent
from contracts.records import Record, types_in
from services.gateway.stored_runs.stored_run import parsed
from services.messaging.connection import Bus, Subscription
from services.messaging.direct_get import checked, sequence_of

_TYPES = frozenset({"control_answered", "resumed", "input_added"})

Answer = asyncio.Future[ControlAnswered]


def answer_in(event: RunEvent) -> ControlAnswered | None:
    """Return the answer to a request that an event contains."""
    match event:
        case ControlAnswered():
            return event
        case InputAdded():
            return ControlAnswered(id=event.id)
        case Resumed() if event.id is not None:
            return ControlAnswered(id=event.id)
    return None


@dataclass(eq=False)
class _Run:
    """The requests to one run that have no answer yet, by their ids."""

    waiting: dict[str, list[Answer]] = field(default_factory=dict)
    requests: int = 0
    subscribing: asyncio.Lock = field(default_factory=asyncio.Lock)
    subscription: Subscription | None = None

    async def on_message(self, message: Msg) -> None:
        headers = message.headers or {}
        if not sequence_of(message) or _TYPES.isdisjoint(types_in(headers)):
            return
        record = parsed(Record, checked(message).data)
        for event in record.events if record is not None else ():
            if (answer := answer_in(event)) is None:
                continue
            for waiting in self.waiting.pop(answer.id, ()):
                if not waiting.done():
                    waiting.set_result(answer)


class ControlAnswers:
    """The requests of this process that wait for an answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._runs: dict[tuple[str, str], _Run] = {}

    @asynccontextmanager
    async def expected(self, tenant: str, run: str, request_id: str) -> AsyncIterator[Answer]:
        """Yield the future answer to a request that is sent within the block. Raises Unavailable."""
        place = tenant, run
        found = self._runs.setdefault(place, _Run())
        answer: Answer = asyncio.get_running_loop().create_future()
        found.waiting.setdefault(request_id, []).append(answer)
        found.requests += 1
        try:
            async with found.subscribing:
                if found.subscription is None:
                    found.subscription = await self._bus.subscribe(subjects.live(tenant, run), found.on_message)
            yield answer
        finally:
            found.requests -= 1
            others = [each for each in found.waiting.pop(request_id, ()) if each is not answer]
            if others:
                found.waiting[request_id] = others
            if not found.requests:
                del self._runs[place]
                if found.subscription is not None:
                    await found.subscription.stop()
