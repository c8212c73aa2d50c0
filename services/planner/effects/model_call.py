"""Ask the model and stream what it says onto the run.

Rule 1: every chunk is fenced by the log's tail, so a dead attempt cannot store any, and a refusal is how a streaming planner learns that
it was outbid or cancelled. Where a model thinks without a word, the run's live log is watched instead.
Rule 2: sending is clocked by itself: while one chunk's append is in flight, tokens gather; its acknowledgement releases the next. So the
first token leaves at once, and load makes chunks larger, not later.
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
"""Reads the log and returns its newest sequence while the call is still this handling's, else None."""
T = TypeVar("T")
_RETRY_S = 0.1
_WATCH_AFTER_S = 0.05
"""A reply that comes sooner is not worth a subscription and a look: the fence of what it says tells the same."""
_TURNING = frozenset({"asked", "paused", "stopping", "done", "error", "cancelled"})
_CLOSE_S = 5.0
_CLOSING: set[asyncio.Task[None]] = set()
"""Closings that go on behind the run's back; the set keeps them alive."""
_LARGE = 16_000
"""Characters of a reply from which on it is read in a thread."""
_AT_ONCE = 1000
"""Characters that are read before other runs have their turn: reading takes up to 20 µs for each."""
_LONGEST = 150_000
"""Characters of one chunk: a record may have a megabyte, and a character six bytes."""


class Address(NamedTuple):
    """Which run is being answered."""

    tenant: str
    run: str


class ChunkSender:
    """Stores chunks one after another; gathers what is said meanwhile."""

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
        self.overtaken = False
        """The call is not ours any more: nothing further is stored."""
        self.on_stop: Callable[[], object] = lambda: None
        """Called once nothing that is said will be stored."""

    @property
    def stopped(self) -> bool:
        """Whether what is said is not stored any more: overtaken, or the server refused it for good."""
        return self.overtaken or self._failure is not None

    def say(self, channel: Channel, text: str, *, done: bool = False) -> None:
        """Have `text` stored and shown as soon as possible."""
        self._waiting.append((channel, text, done))
        if not self.stopped and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._sent)

    def begun(self, channel: Channel) -> bool:
        """Whether anything was said on the channel."""
        return self._numbers[channel] > 0 or any(said[0] == channel for said in self._waiting)

    async def drained(self) -> None:
        """Return once everything said is stored, or the call is not ours any more. Raises Refused."""
        if self._sending is not None:
            await asyncio.wait({self._sending})
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Store nothing further."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        while self._waiting and not self.overtaken:
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
        if len(text) > _LONGEST:
            self._waiting.insert(0, (channel, text[_LONGEST:], done))
            text, done = text[:_LONGEST], False
        number = self._numbers[channel]
        self._numbers[channel] = number + 1
        kind = Chunk if channel == "answer" else Thinking
        event = kind(seq=number, text=text, done=done, action_seq=self._asked.turn, attempt=self._asked.attempt)
        return Record(events=[event])

    async def _store(self, record: Record) -> None:
        data = record.model_dump_json().encode()
        while not self.overtaken:
            headers = {
                EVENTS_HEADER: record.types(),
                # A server that stalled finds this write and its repetition in its socket, and the fence would let both in.
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
                await self.look()
            except Unsure:
                await asyncio.sleep(_RETRY_S)
                if await self._is_stored(record.id):
                    return
            else:
                return

    async def look(self) -> None:
        """Read the log: the call may be somebody else's by now; if not, the fence moves up to the new tail."""
        tail = await self._tail()
        if tail is not None:
            self._guard = tail
        else:
            self.abandon()

    def abandon(self) -> None:
        """The call is not ours to answer any more."""
        if not self.overtaken:
            self.overtaken = True
            self.stop()
            self.on_stop()

    async def _is_stored(self, record_id: str) -> bool:
        mark = record_id.encode()
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(self._subject, self._last + 1):
            if mark in data:
                self._last = sequence
                return True
        return False


class Watch:
    """Calls `look` shortly after it was made, and then for every record on the run's log that may take the call away; until stopped."""

    def __init__(self, bus: Bus, address: Address, look: Callable[[], Awaitable[None]]) -> None:
        self._bus = bus
        self._subject = subjects.live_log(address.tenant, address.run)
        self._look = look
        self._subscription: Subscription | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stopped = False
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._begin)

    async def stop(self) -> None:
        """Look no longer. A look that is under way is not waited for: it waits while NATS is away."""
        self._stopped = True
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        if self._subscription is not None:
            await _unsubscribe(self._subscription)

    def _begin(self) -> None:
        self._looking = asyncio.create_task(self._subscribe_and_look())

    async def _subscribe_and_look(self) -> None:
        subscription = await self._bus.nc.subscribe(self._subject, cb=self._on_log)
        if self._stopped:
            await _unsubscribe(subscription)
            return
        self._subscription = subscription
        # What was recorded before the subscription took hold is seen by this look: both go over the same connection.
        await self._look()

    async def _on_log(self, message: Msg) -> None:
        if not _TURNING.isdisjoint((message.headers or {}).get(EVENTS_HEADER, "").split(",")):
            await self._look()


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
    """Stream one reply and return what it means, or None when somebody else owns the call now (the model's request is closed then).

    `answer_of` says, for a decision, what it comes to in this run and the whole text of the answer that it ends with (empty: none).
    """
    consuming = asyncio.create_task(_consume(stream, reading, sender))
    sender.on_stop = consuming.cancel
    watch = Watch(bus, address, sender.look)
    decision = None
    try:
        await asyncio.wait({consuming})
        if not sender.stopped:
            decision, answer = answer_of(consuming.result())
            decision = _say_the_rest(sender, reading, decision, answer)
        await sender.drained()
        return None if sender.overtaken else decision
    finally:
        consuming.cancel()
        sender.stop()
        await watch.stop()
        await _close(consuming, stream)


async def _close(consuming: asyncio.Task[Decision], stream: AsyncGenerator[Delta | Reply, None]) -> None:
    """Close the model's request. A provider's library that does not come back from that must not hold the run up."""

    async def close() -> None:
        await asyncio.wait({consuming})
        await stream.aclose()

    closing = asyncio.create_task(close())
    await asyncio.wait({closing}, timeout=_CLOSE_S)
    if not closing.done():
        logger.warning("model_request_not_closed", after_s=_CLOSE_S)
        _CLOSING.add(closing)
        closing.add_done_callback(_CLOSING.discard)
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        logger.info("model_request_closed_badly", error=type(error).__name__)


async def watched(bus: Bus, address: Address, tail: Tail, work: Coroutine[Any, Any, T]) -> T | None:
    """Do a short piece of work for a model call of ours, or return None as soon as somebody else owns the call."""
    working = asyncio.create_task(work)
    gone = False

    async def look() -> None:
        nonlocal gone
        if await tail() is None:
            gone = True
            working.cancel()

    watch = Watch(bus, address, look)
    try:
        await asyncio.wait({working})
        return None if gone else working.result()
    finally:
        working.cancel()
        await watch.stop()
        await asyncio.wait({working})


async def say(sender: ChunkSender, answer: str) -> bool:
    """Show an answer that is known already, without asking the model. Returns whether the call is still ours."""
    sender.say("answer", answer, done=True)
    await sender.drained()
    return not sender.overtaken


def in_parts(piece: Delta) -> Iterator[Delta]:
    """A delta in parts that are read soon: some servers send a whole reply at once."""
    call = piece.call
    if max(len(piece.text), len(piece.reasoning), len(call.arguments) if call else 0) <= _AT_ONCE:
        yield piece
        return
    for start in range(0, len(piece.reasoning), _AT_ONCE):
        yield Delta(reasoning=piece.reasoning[start : start + _AT_ONCE])
    for start in range(0, len(piece.text), _AT_ONCE):
        yield Delta(text=piece.text[start : start + _AT_ONCE])
    if call is not None:
        for start in range(0, len(call.arguments) or 1, _AT_ONCE):
            yield Delta(call=CallPiece(call.index, "" if start else call.name, call.arguments[start : start + _AT_ONCE]))


def _size(reply: Reply) -> int:
    """Characters that have to be read."""
    return len(reply.text) + len(reply.reasoning or "") + sum(len(call["function"]["arguments"]) for call in reply.tool_calls)


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
                return await asyncio.to_thread(reading.decide, piece) if _size(piece) > _LARGE else reading.decide(piece)
            for part in in_parts(piece):
                _feed(part, reading, sender)
                if part is not piece:
                    await asyncio.sleep(0)
    except ModelFailed as error:
        # Before the first word it was tried again already.
        # What a reply that broke off has cost, nobody says.
        usage = Usage(model_calls=error.calls, cost_usd=0.0, estimated=error.after_output)
        return Failed(fault=error.fault, again=error.fault.retryable and error.after_output, usage=usage)
    raise AssertionError("a model's stream ends with its Reply")


def _say_the_rest(sender: ChunkSender, reading: Reading, decision: Decision, answer: str) -> Decision:
    """Show what only the whole reply revealed. What was shown already may turn out not to be how the answer begins: see `restate`."""
    if sender.begun("thinking"):
        sender.say("thinking", "", done=True)
    if not answer or not isinstance(decision, Final):
        return decision
    if not answer.startswith(reading.shown):
        return replace(decision, restate=True)
    sender.say("answer", answer.removeprefix(reading.shown), done=True)
    return decision
