"""Messages for planners: each is stored before its caller gets an answer; and what planners answer to them.

A message id makes repetitions harmless. A write is repeated for a few seconds; then the caller gets 503 with
`Retry-After`.

An answer is an event on the run's stream, or the fact on the log of the run or session that the request led to. Both
are received live, so the gateway subscribes before it sends the request. Requests to one run or session share a
subscription: of 10,000 that are sent at once, each would else receive the answers to all.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog
from nats.aio.msg import Msg

from contracts.runs.events import ControlAnswered, InputAdded, Resumed, RunEvent
from contracts.sessions.proposals import (
    ProposalApplied,
    ProposalApplying,
    ProposalDismissed,
    ProposalReleased,
    ProposalSuperseded,
)
from contracts.sessions.records import ContextSet, SessionEvent, SessionRecord
from contracts.sessions.tasks import TaskControlDone, TaskControlRefused
from contracts.wire import subjects
from contracts.wire.base import parsed
from contracts.wire.records import Record, types_in
from services.gateway.errors import TryAgain
from services.messaging.connection import Acknowledged, Bus
from services.messaging.errors import FULL, Refused, Unsure
from services.messaging.fairness import TimeSlices
from services.messaging.nats_connection import Subscription
from services.messaging.reads import checked, sequence_of
from services.shared.sessions.proposals import TRANSITIONS

logger = structlog.get_logger(__name__)

ACCEPT_WAIT_S = 3.0
"""How long a write is tried before the caller gets 503."""
ANSWER_WAIT_S = 5.0
"""How long a decision, an input or a change waits for the answer of a planner."""
_ATTEMPT_TIMEOUT_S = 1.0
_RUN_TYPES = frozenset({"control_answered", "resumed", "input_added"})
_SESSION_TYPES = frozenset({"context_set", "task_control_done", "task_control_refused"}) | {*TRANSITIONS}


class MessageWriter:
    """Writes messages to the streams of planners."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._time_slices = TimeSlices()
        """Of tenants, at writing requests: a stream stores one after another, as fast as the disk allows."""

    async def store_request(self, tenant: str, run: str, data: bytes) -> Acknowledged:
        """Return once the request of a run is stored. Raises TryAgain when that is unknown or impossible."""
        await self._time_slices.take(tenant, is_new=True)
        try:
            return await self.store(subjects.request(tenant, run), data, run)
        finally:
            self._time_slices.give_back(tenant)

    async def store(self, subject: str, data: bytes, message_id: str) -> Acknowledged:
        """Return once the message is stored. Raises TryAgain when that is unknown or impossible."""
        deadline = time.monotonic() + ACCEPT_WAIT_S
        while True:
            try:
                timeout_s = min(_ATTEMPT_TIMEOUT_S, ACCEPT_WAIT_S)
                headers = {"Nats-Msg-Id": message_id}
                return await self._bus.publish_acknowledged(subject, data, headers, timeout_s)
            except Unsure as error:
                if time.monotonic() >= deadline:
                    raise TryAgain("The message bus does not answer.") from error
                await self._bus.retry_pause(is_bounded=True)
            except Refused as error:
                if error.is_second_of_subject:
                    # The run's request is stored, and no planner has taken it yet.
                    return Acknowledged(0, is_repeated=True)
                logger.warning("write_refused", subject=subject, code=error.code, reason=error.text)
                raise TryAgain("The queue of new runs is full." if error.code == FULL else None, after_s=5) from error


A = TypeVar("A")
Answers = Iterable[tuple[str, A]]
"""The answers in a message, each with the id of its request."""


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


def of_run(message: Msg) -> Iterator[tuple[str, ControlAnswered]]:
    """Yield the answers in a record of a run."""
    record = parsed(Record, message.data) if _has(message, _RUN_TYPES) else None
    for event in record.events if record is not None else ():
        if (answer := answer_in(event)) is not None:
            yield answer.id, answer


def of_session(message: Msg) -> Iterator[tuple[str, SessionEvent]]:
    """Yield the answers in a record of a session."""
    record = parsed(SessionRecord, message.data) if _has(message, _SESSION_TYPES) else None
    for event in record.events if record is not None else ():
        match event:
            case TaskControlDone() | TaskControlRefused():
                yield event.id, event
            case (
                ProposalApplying() | ProposalApplied() | ProposalReleased() | ProposalDismissed() | ProposalSuperseded()
            ):
                yield event.proposal_id, event
            case ContextSet():
                yield context_id(event.by, event.values), event


def context_id(by: str, values: dict[str, object]) -> str:
    """Return what stands for the id of a request that sets these values, and for that of the fact."""
    return json.dumps([by, values], sort_keys=True)


def _has(message: Msg, types: frozenset[str]) -> bool:
    return bool(sequence_of(message)) and not types.isdisjoint(types_in(message.headers or {}))


@dataclass(eq=False)
class _Subject(Generic[A]):
    """The requests with one subject for answers that have none yet, by their ids."""

    read: Callable[[Msg], Answers[A]]
    waiting: dict[str, list[asyncio.Future[A]]] = field(default_factory=dict)
    requests: int = 0
    subscribing: asyncio.Lock = field(default_factory=asyncio.Lock)
    subscription: Subscription | None = None

    async def on_message(self, message: Msg) -> None:
        for request_id, answer in self.read(checked(message)):
            for waiting in self.waiting.pop(request_id, ()):
                if not waiting.done():
                    waiting.set_result(answer)


class ControlAnswers(Generic[A]):
    """The requests of this process that wait for an answer."""

    def __init__(self, bus: Bus, read: Callable[[Msg], Answers[A]]) -> None:
        """`read`: `of_run` or `of_session`."""
        self._bus = bus
        self._read = read
        self._subjects: dict[str, _Subject[A]] = {}

    @asynccontextmanager
    async def expected(self, subject: str, request_id: str) -> AsyncIterator[asyncio.Future[A]]:
        """Yield the future answer to a request that is sent within the block. Raises Unavailable.

        `subject`: where answers are received live.
        """
        found = self._subjects.setdefault(subject, _Subject(self._read))
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        found.waiting.setdefault(request_id, []).append(answer)
        found.requests += 1
        try:
            async with found.subscribing:
                if found.subscription is None:
                    found.subscription = await self._bus.subscribe(subject, found.on_message)
            yield answer
        finally:
            found.requests -= 1
            others = [each for each in found.waiting.pop(request_id, ()) if each is not answer]
            if others:
                found.waiting[request_id] = others
            if not found.requests:
                del self._subjects[subject]
                if found.subscription is not None:
                    await found.subscription.stop()
