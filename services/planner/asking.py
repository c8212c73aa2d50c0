"""Ask the model and stream what it says onto the run.

Rule 1: every chunk is fenced by the log's tail, so a dead attempt cannot store any, and a refusal is how a streaming planner learns that
it was outbid or cancelled. A model that thinks without a word is watched over the run's live log instead.
Rule 2: sending is clocked by itself: while one chunk's append is in flight, tokens gather; its acknowledgement releases the next. So the
first token leaves at once, and load makes chunks larger, not later.
Rule 3: the last chunk is stored before the decision is recorded, so sequence order is reading order.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.events import Asked, Chunk, Thinking
from contracts.records import EVENTS_HEADER, Record
from services.runtime.bus import Bus
from services.runtime.errors import WRONG_LAST_SEQUENCE, Refused, Unsure

from .decisions import Decision, Failed, Final
from .model import Delta, ModelFailed, Reply
from .strategies.base import Reading

logger = structlog.get_logger(__name__)

Channel = Literal["answer", "thinking"]
Tail = Callable[[], Awaitable[int | None]]
"""Reads the log and returns its newest sequence while the call is still this handling's, else None."""
T = TypeVar("T")
_RETRY_S = 0.1
_TURNING = frozenset({"asked", "done", "error", "cancelled"})


@dataclass(frozen=True, slots=True)
class Address:
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
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers: dict[Channel, int] = {"answer": 0, "thinking": 0}
        self.overtaken = asyncio.Event()

    def say(self, channel: Channel, text: str, *, done: bool = False) -> None:
        """Have `text` stored and shown as soon as possible."""
        self._waiting.append((channel, text, done))
        self._idle.clear()
        self._wake.set()

    def begun(self, channel: Channel) -> bool:
        """Whether anything was said on the channel."""
        return self._numbers[channel] > 0 or any(said[0] == channel for said in self._waiting)

    async def drained(self) -> None:
        """Return once everything said is stored, or the call is not ours any more."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and not self.overtaken.is_set():
                await self._store(self._gather())
            self._waiting.clear()
            self._idle.set()

    def _gather(self) -> Record:
        channel, _, done = self._waiting[0]
        count = 0
        while count < len(self._waiting) and self._waiting[count][0] == channel:
            done = self._waiting[count][2]
            count += 1
        text = "".join(said[1] for said in self._waiting[:count])
        del self._waiting[:count]
        number = self._numbers[channel]
        self._numbers[channel] = number + 1
        kind = Chunk if channel == "answer" else Thinking
        event = kind(seq=number, text=text, done=done, action_seq=self._asked.turn, attempt=self._asked.attempt)
        return Record(events=[event])

    async def _store(self, record: Record) -> None:
        data = record.model_dump_json().encode()
        while not self.overtaken.is_set():
            headers = {
                EVENTS_HEADER: record.types(),
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
        if tail is None:
            self.overtaken.set()
            self._idle.set()
        else:
            self._guard = tail

    async def _is_stored(self, record_id: str) -> bool:
        mark = record_id.encode()
        for sequence, data in await (await self._bus.reader(subjects.RUNS)).read(self._subject, self._last + 1):
            if mark in data:
                self._last = sequence
                return True
        return False


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

    async def on_log(message: Msg) -> None:
        if not _TURNING.isdisjoint((message.headers or {}).get(EVENTS_HEADER, "").split(",")):
            await sender.look()

    watch = await bus.nc.subscribe(subjects.live_log(address.tenant, address.run), cb=on_log)
    sending = asyncio.create_task(sender.run())
    consuming = asyncio.create_task(_consume(stream, reading, sender))
    # What was recorded before the subscription took hold is seen by this look.
    looking = asyncio.create_task(sender.look())
    overtaken = asyncio.create_task(sender.overtaken.wait())
    drained: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({consuming, overtaken, sending}, return_when=asyncio.FIRST_COMPLETED)
        if not sender.overtaken.is_set() and not sending.done():
            decision, answer = answer_of(consuming.result())
            _say_the_rest(sender, reading, decision, answer)
            drained = asyncio.create_task(sender.drained())
            await asyncio.wait({drained, sending}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()  # Raises what stopped it.
        return None if sender.overtaken.is_set() else decision
    finally:
        for task in filter(None, (consuming, looking, overtaken, sending, drained)):
            task.cancel()
        await asyncio.wait({consuming})
        await stream.aclose()
        await _unsubscribe(watch)


async def watched(bus: Bus, address: Address, tail: Tail, work: Coroutine[Any, Any, T]) -> T | None:
    """Do a short piece of work for a model call of ours, or return None as soon as somebody else owns the call."""
    gone = asyncio.Event()

    async def look() -> None:
        if await tail() is None:
            gone.set()

    async def on_log(message: Msg) -> None:
        if not _TURNING.isdisjoint((message.headers or {}).get(EVENTS_HEADER, "").split(",")):
            await look()

    watch = await bus.nc.subscribe(subjects.live_log(address.tenant, address.run), cb=on_log)
    working, leaving, looking = asyncio.create_task(work), asyncio.create_task(gone.wait()), asyncio.create_task(look())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return None if gone.is_set() else working.result()
    finally:
        for task in (working, leaving, looking):
            task.cancel()
        await asyncio.wait({working})
        await _unsubscribe(watch)


async def _unsubscribe(watch: Subscription) -> None:
    try:
        await watch.unsubscribe()
    except (NatsError, ConnectionError, OSError):
        logger.debug("unsubscribe_failed")


async def _consume(stream: AsyncGenerator[Delta | Reply, None], reading: Reading, sender: ChunkSender) -> Decision:
    try:
        async for piece in stream:
            if isinstance(piece, Reply):
                return reading.decide(piece)
            if piece.reasoning:
                sender.say("thinking", piece.reasoning)
            if piece.text and (visible := reading.feed(piece.text)):
                sender.say("answer", visible)
    except ModelFailed as error:
        return Failed(fault=error.fault, again=error.fault.retryable)
    raise AssertionError("a model's stream ends with its Reply")


def _say_the_rest(sender: ChunkSender, reading: Reading, decision: Decision, answer: str) -> None:
    if sender.begun("thinking"):
        sender.say("thinking", "", done=True)
    if isinstance(decision, Final):
        sender.say("answer", answer.removeprefix(reading.shown), done=True)
