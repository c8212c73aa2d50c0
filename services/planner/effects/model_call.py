"""Calls a model and streams its reply to the run's listeners.

Rule 1: every chunk is fenced by the log's tail, so a superseded attempt cannot store one. A refused chunk tells a
streaming planner that it was superseded or cancelled. While a model sends nothing, the run's live log is watched
instead.
Rule 2: one append is in flight at a time. Tokens gather meanwhile, and its acknowledgement releases them as the next
chunk. So the first token leaves at once, and under load chunks become larger, not later.
Rule 3: the last chunk is stored before the decision is recorded, so sequence order is reading order.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.events import Asked, Chunk, Thinking
from contracts.payload import Usage
from contracts.records import EVENTS_HEADER, Record
from services.messaging.connection import Bus
from services.messaging.errors import WRONG_LAST_SEQUENCE, Refused, Unsure
from services.planner.models.litellm import Delta, ModelFailed, Reply
from services.planner.models.types import CallPiece
from services.planner.run.decision import Decision, Failed, Final
from services.planner.strategies.base import Reading

logger = structlog.get_logger(__name__)

Channel = Literal["answer", "thinking"]
Tail = Callable[[], Awaitable[int | None]]
"""Returns the newest sequence of the log while this handling owns the call, else None."""
T = TypeVar("T")
RETRY_S = 0.1
WATCH_AFTER_S = 0.05
"""A faster reply needs no watch: the fence of its chunks gives the same information."""
EVENTS_THAT_END_A_CALL = frozenset({"asked", "paused", "stopping", "done", "error", "cancelled"})
CLOSE_TIMEOUT_S = 5.0
PENDING_CLOSES: set[asyncio.Task[None]] = set()
"""Requests that are still closing after their call has ended. The set keeps their tasks alive."""
MAX_INLINE_CHARACTERS = 16_000
"""A longer reply is parsed in a thread."""
CHARACTERS_PER_SLICE = 1000
"""Parsed before the event loop runs other tasks: parsing takes up to 20 µs per character."""
MAX_CHUNK_CHARACTERS = 150_000
"""Of one chunk. A record holds one megabyte, and a character takes up to six bytes."""


class Address(NamedTuple):
    """The run of a message."""

    tenant: str
    run: str


class ChunkSender:
    """Stores chunks one after another, and gathers text in between."""

    def __init__(self, bus: Bus, address: Address, asked: Asked, guard: int, tail: Tail, ttl_s: int) -> None:
        self._bus = bus
        self._subject = subjects.stream(address.tenant, address.run)
        self._guard_subject = subjects.log(address.tenant, address.run)
        self._asked = asked
        self._guard = self._last = guard
        self._tail = tail
        self._ttl = str(ttl_s)
        self._waiting: list[tuple[Channel, str, bool]] = []
        self._sending: asyncio.Task[None] | None = None
        self._numbers: dict[Channel, int] = {"answer": 0, "thinking": 0}
        self._failure: BaseException | None = None
        self.superseded = False
        """Another handling owns the call: nothing more is stored."""
        self.on_stop: Callable[[], object] = lambda: None
        """Called when the sender stops storing."""

    @property
    def stopped(self) -> bool:
        """Whether the sender stores nothing more: superseded, or refused by the server."""
        return self.superseded or self._failure is not None

    def say(self, channel: Channel, text: str, *, done: bool = False) -> None:
        """Queue `text` to be stored and streamed as soon as possible."""
        self._waiting.append((channel, text, done))
        if not self.stopped and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._sent)

    def begun(self, channel: Channel) -> bool:
        """Whether the channel has any text."""
        return self._numbers[channel] > 0 or any(said[0] == channel for said in self._waiting)

    async def drained(self) -> None:
        """Wait until all text is stored or the call is superseded. Raises Refused."""
        if self._sending is not None:
            await asyncio.wait({self._sending})
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Store nothing more."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        while self._waiting and not self.superseded:
            await self._store(self._gather())

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled() and (failure := sending.exception()) is not None:
            self._failure = failure
            self.on_stop()

    def _gather(self) -> Record:
        channel, _, done = self._waiting[0]
        count = 0
        while count < len(self._waiting) and self._waiting[count][0] == channel:
            done = self._waiting[count][2]
            count += 1
        text = "".join(said[1] for said in self._waiting[:count])
        del self._waiting[:count]
        if len(text) > MAX_CHUNK_CHARACTERS:
            self._waiting.insert(0, (channel, text[MAX_CHUNK_CHARACTERS:], done))
            text, done = text[:MAX_CHUNK_CHARACTERS], False
        number = self._numbers[channel]
        self._numbers[channel] = number + 1
        kind = Chunk if channel == "answer" else Thinking
        event = kind(seq=number, text=text, done=done, action_seq=self._asked.turn, attempt=self._asked.attempt)
        return Record(events=[event])

    async def _store(self, record: Record) -> None:
        data = record.model_dump_json().encode()
        while not self.superseded:
            headers = {
                EVENTS_HEADER: record.types(),
                # A stalled server may read this write and its repetition together. The fence alone would accept both.
                "Nats-Msg-Id": record.id,
                "Nats-TTL": self._ttl,
                "Nats-Expected-Last-Subject-Sequence": str(self._guard),
                "Nats-Expected-Last-Subject-Sequence-Subject": self._guard_subject,
            }
            try:
                self._last = await self._bus.publish(self._subject, data, headers)
            except Refused as error:
                if error.code != WRONG_LAST_SEQUENCE:
                    raise
                await self.check()
            except Unsure:
                await asyncio.sleep(RETRY_S)
                if await self._is_stored(record.id):
                    return
            else:
                return

    async def check(self) -> None:
        """Read the log's tail. Abandon a superseded call; else move the fence to the new tail."""
        tail = await self._tail()
        if tail is not None:
            self._guard = tail
        else:
            self.abandon()

    def abandon(self) -> None:
        """Stop: another handling owns the call, or the run's deadline has passed."""
        if not self.superseded:
            self.superseded = True
            self.stop()
            self.on_stop()

    async def _is_stored(self, record_id: str) -> bool:
        mark = record_id.encode()
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(self._subject, self._last + 1):
            if mark in data:
                self._last = sequence
                return True
        return False


class OwnershipWatch:
    """Calls `check` 50 ms after its construction, and again on each record that may end the call, until stopped."""

    def __init__(self, bus: Bus, address: Address, check: Callable[[], Awaitable[None]]) -> None:
        self._bus = bus
        self._subject = subjects.live_log(address.tenant, address.run)
        self._check = check
        self._subscription: Subscription | None = None
        self._checking: asyncio.Task[None] | None = None
        self._stopped = False
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)

    async def stop(self) -> None:
        """Stop watching. A running check is cancelled, since it would wait while NATS is unavailable."""
        self._stopped = True
        self._timer.cancel()
        if self._checking is not None:
            self._checking.cancel()
        if self._subscription is not None:
            await _unsubscribe(self._subscription)

    def _begin(self) -> None:
        self._checking = asyncio.create_task(self._subscribe_and_check())

    async def _subscribe_and_check(self) -> None:
        subscription = await self._bus.nc.subscribe(self._subject, cb=self._on_log)
        if self._stopped:
            await _unsubscribe(subscription)
            return
        self._subscription = subscription
        # This check covers records from before the subscription: both use one connection, in order.
        await self._check()

    async def _on_log(self, message: Msg) -> None:
        if not EVENTS_THAT_END_A_CALL.isdisjoint((message.headers or {}).get(EVENTS_HEADER, "").split(",")):
            await self._check()


async def _unsubscribe(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except (NatsError, ConnectionError, OSError):
        logger.debug("unsubscribe_failed")


async def ask(
    bus: Bus,
    address: Address,
    sender: ChunkSender,
    stream: AsyncGenerator[Delta | Reply, None],
    reading: Reading,
    answer_of: Callable[[Decision], tuple[Decision, str]],
) -> Decision | None:
    """Stream one reply and return its decision, or None when the call is superseded. The request is closed then.

    `answer_of`: returns the resolved decision, and the full text of the answer that ends the run (empty: none).
    """
    consuming = asyncio.create_task(_consume(stream, reading, sender))
    sender.on_stop = consuming.cancel
    watch = OwnershipWatch(bus, address, sender.check)
    decision = None
    try:
        await asyncio.wait({consuming})
        if not sender.stopped:
            decision, answer = answer_of(consuming.result())
            decision = _say_the_rest(sender, reading, decision, answer)
        await sender.drained()
        return None if sender.superseded else decision
    finally:
        consuming.cancel()
        sender.stop()
        await watch.stop()
        await _close(consuming, stream)


async def _close(consuming: asyncio.Task[Decision], stream: AsyncGenerator[Delta | Reply, None]) -> None:
    """Close the model's request. A provider's library that hangs there must not delay the run."""

    async def close() -> None:
        await asyncio.wait({consuming})
        await stream.aclose()

    closing = asyncio.create_task(close())
    await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
    if not closing.done():
        logger.warning("model_request_not_closed", after_s=CLOSE_TIMEOUT_S)
        PENDING_CLOSES.add(closing)
        closing.add_done_callback(PENDING_CLOSES.discard)
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        logger.info("model_request_closed_badly", error=type(error).__name__)


async def watched(bus: Bus, address: Address, tail: Tail, work: Coroutine[Any, Any, T]) -> T | None:
    """Do a short piece of work for a model call, or return None as soon as the call is superseded."""
    working = asyncio.create_task(work)
    superseded = False

    async def check() -> None:
        nonlocal superseded
        if await tail() is None:
            superseded = True
            working.cancel()

    watch = OwnershipWatch(bus, address, check)
    try:
        await asyncio.wait({working})
        return None if superseded else working.result()
    finally:
        working.cancel()
        await watch.stop()
        await asyncio.wait({working})


async def say(sender: ChunkSender, answer: str) -> bool:
    """Stream a known answer without a model call. Returns False when the call is superseded."""
    sender.say("answer", answer, done=True)
    await sender.drained()
    return not sender.superseded


def in_parts(piece: Delta) -> Iterator[Delta]:
    """Split a delta into short parts, since some servers send a whole reply at once."""
    call = piece.call
    if max(len(piece.text), len(piece.reasoning), len(call.arguments) if call else 0) <= CHARACTERS_PER_SLICE:
        yield piece
        return
    for start in range(0, len(piece.reasoning), CHARACTERS_PER_SLICE):
        yield Delta(reasoning=piece.reasoning[start : start + CHARACTERS_PER_SLICE])
    for start in range(0, len(piece.text), CHARACTERS_PER_SLICE):
        yield Delta(text=piece.text[start : start + CHARACTERS_PER_SLICE])
    if call is not None:
        for start in range(0, len(call.arguments) or 1, CHARACTERS_PER_SLICE):
            yield Delta(
                call=CallPiece(
                    call.index, "" if start else call.name, call.arguments[start : start + CHARACTERS_PER_SLICE]
                )
            )


def _size(reply: Reply) -> int:
    """Characters that have to be read."""
    return (
        len(reply.text)
        + len(reply.reasoning or "")
        + sum(len(call["function"]["arguments"]) for call in reply.tool_calls)
    )


def _feed(piece: Delta, reading: Reading, sender: ChunkSender) -> None:
    if piece.reasoning and (thought := reading.feed_reasoning(piece.reasoning)):
        sender.say("thinking", thought)
    visible = reading.feed(piece.text) if piece.text else reading.feed_call(piece.call) if piece.call else ""
    if visible:
        sender.say("answer", visible)


async def _consume(stream: AsyncGenerator[Delta | Reply, None], reading: Reading, sender: ChunkSender) -> Decision:
    try:
        async for piece in stream:
            if isinstance(piece, Reply):
                # A reply of megabytes takes seconds to read; other runs stream meanwhile.
                return (
                    await asyncio.to_thread(reading.decide, piece)
                    if _size(piece) > MAX_INLINE_CHARACTERS
                    else reading.decide(piece)
                )
            for part in in_parts(piece):
                _feed(part, reading, sender)
                if part is not piece:
                    await asyncio.sleep(0)
    except ModelFailed as error:
        # Failures before the first delta were retried already.
        # No provider reports the cost of a reply that broke off.
        usage = Usage(model_calls=error.calls, cost_usd=0.0, estimated=error.after_output)
        return Failed(fault=error.fault, again=error.fault.retryable and error.after_output, usage=usage)
    raise AssertionError("a model's stream ends with its Reply")


def _say_the_rest(sender: ChunkSender, reading: Reading, decision: Decision, answer: str) -> Decision:
    """Stream the rest of the answer. If the streamed text is not a prefix of it, set `restate` instead."""
    if sender.begun("thinking"):
        sender.say("thinking", "", done=True)
    if not answer or not isinstance(decision, Final):
        return decision
    if not answer.startswith(reading.shown):
        return replace(decision, restate=True)
    sender.say("answer", answer.removeprefix(reading.shown), done=True)
    return decision
