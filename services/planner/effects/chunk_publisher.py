"""Stores the chunks of a model's reply, for the run's listeners.

Rule 1: every chunk is stored only while the log's tail is the one that the attempt knows, so a superseded attempt
cannot store one. A refused chunk tells a streaming planner that it was superseded or cancelled.
Rule 2: one append of a reply is in flight at a time, and `ChunkPace` says when the next one may begin. Text gathers
meanwhile. So the first token leaves at once, and under load chunks become larger, not later.
Rule 3: text that is buffered when the reply ends may be stored with the decision (`ending.terminal.completed`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import orjson

from contracts.runs.events import Asked, BlockStarted, Chunk, Thinking
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from contracts.wire.records import EVENTS_HEADER, EXPIRES, VERSION
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.guarded_write import Guard
from services.planner.logs.ownership_watch import Address, Tail

Channel = Literal["answer", "thinking"]
MAX_HELD_CHARACTERS = 16_000
"""Longest text that is stored with the decision. Longer text is stored as chunks, so that the decision has room."""
MAX_CHUNK_CHARACTERS = 150_000
"""Longest text of one chunk: a record holds one megabyte, and a character takes up to six bytes."""
MAX_IN_FLIGHT = 16
"""With fewer, a busy process leaves NATS idle between two steps of its event loop; with more, other records wait."""
LOST_AFTER_S = 1.0
"""A write that takes longer does not count as in flight: it is being repeated, or NATS is unavailable."""


class ChunkPace:
    """Decides when chunks of all runs are written, so that under load they become larger, not later. No I/O.

    Rule 1: at most 16 chunks of all runs together are being written. The next write begins when an acknowledgement is
    handled, so with a slow server, many runs or a late event loop chunks wait, and their text grows meanwhile. NATS
    stores one write after another: more of them would wait there, in front of other records.
    Rule 2: chunks are written in the order in which they were ready, but first chunks of replies before all others.

    `clock`: returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at: dict[object, float] = {}
        """Of each write in flight, the oldest first."""
        self._firsts: deque[tuple[object, Callable[[], bool]]] = deque()
        self._others: deque[tuple[object, Callable[[], bool]]] = deque()

    def enter(self, write: object, begin: Callable[[], bool], *, is_first: bool) -> None:
        """Call `begin` once few enough writes are in flight. `begin` returns whether it has begun a write.

        Call `leave` when that write has ended.
        """
        (self._firsts if is_first else self._others).append((write, begin))
        self._begin_next()

    def leave(self, write: object) -> None:
        """Note that a write has ended, and begin others."""
        self._began_at.pop(write, None)
        self._begin_next()

    def _begin_next(self) -> None:
        while (waiting := self._firsts or self._others) and self._has_room():
            write, begin = waiting.popleft()
            if begin():
                self._began_at[write] = self._clock()

    def _has_room(self) -> bool:
        if len(self._began_at) < MAX_IN_FLIGHT:
            return True
        oldest = next(iter(self._began_at))
        if self._clock() - self._began_at[oldest] < LOST_AFTER_S:
            return False
        del self._began_at[oldest]
        return True


class ChunkWriter:
    """What the chunks of all runs of this process share."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.pace = ChunkPace(time.monotonic)

    def record_of(self, event: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        """Return the record of an event and its headers: the bytes of `Record.model_dump_json`, in a tenth of its time.

        A stalled server may read a write and its repetition together. The expected sequence alone would accept both,
        so the record has a message id.
        """
        record_id = new_id()
        data = orjson.dumps({"v": VERSION, "id": record_id, "at": unix_ms(), "events": [event]})
        return data, {EVENTS_HEADER: event["type"], "Nats-Msg-Id": record_id, **EXPIRES}


class ChunkPublisher:
    """Stores the chunks of one reply one after another, and gathers text in between.

    `offset`: of the first character, where the reply is a part of a longer message.
    """

    def __init__(
        self, writer: ChunkWriter, address: Address, asked: Asked, guard: int, tail: Tail, *, offset: int = 0
    ) -> None:
        self._writer = writer
        self._subject = subjects.stream(address.tenant, address.run)
        self._guard_subject = subjects.log(address.tenant, address.run)
        self.asked = asked
        self._guard = self._since = guard
        self._tail = tail
        self._waiting: list[tuple[Channel | None, str, bool]] = []
        """None: the name of a hidden block that has begun."""
        self._numbers: dict[Channel, int] = {"answer": 0, "thinking": 0}
        self.offset = offset
        self._offsets = self._numbers | {"answer": offset}
        self._writing: asyncio.Task[None] | None = None
        self._is_queued = False
        """It waits for `ChunkPace` to begin its next write."""
        self._idle = asyncio.Event()
        self._failure: BaseException | None = None
        self._holding = False
        self.stream_seq = 0
        """Sequence of the newest chunk that was stored; 0: none."""
        self.superseded = False
        """Another handling owns the call: nothing more is stored."""
        self.on_stop: Callable[[], object] = lambda: None
        """Called when nothing more is stored."""

    @property
    def stopped(self) -> bool:
        """Whether nothing more is stored: superseded, or refused by the server."""
        return self.superseded or self._failure is not None

    def say(self, channel: Channel, text: str, *, done: bool = False) -> None:
        """Queue `text` to be stored and streamed as soon as possible."""
        self._waiting.append((channel, text, done))
        self._go_on()

    def note_block(self, name: str) -> None:
        """Tell listeners that a hidden block has begun."""
        self._waiting.append((None, name, False))
        self._go_on()

    def hold(self) -> None:
        """Begin no further write: text that waits, and any that follows, is stored with the decision."""
        self._holding = True

    def release(self) -> None:
        """Store what was held back."""
        self._holding = False
        self._go_on()

    @property
    def is_brief(self) -> bool:
        """Whether the text that waits is short enough to be stored with the decision."""
        return sum(len(said[1]) for said in self._waiting) <= MAX_HELD_CHARACTERS

    def last_words(self) -> tuple[Chunk | Thinking, ...]:
        """Take the text that was held back, as the events that follow the stored ones."""
        words: list[Chunk | Thinking] = []
        self._waiting = [said for said in self._waiting if said[0] is not None]
        while self._waiting:
            event = self._gather()
            words.append(Chunk(**event) if event["type"] == "chunk" else Thinking(**event))
        return tuple(words)

    @property
    def chunks(self) -> int:
        """How many chunks of the answer were stored or taken so far."""
        return self._numbers["answer"]

    def has_text(self, channel: Channel) -> bool:
        """Whether the channel has any text."""
        return self._numbers[channel] > 0 or any(said[0] == channel for said in self._waiting)

    async def drained(self) -> None:
        """Wait until all text that is not held is stored, or the call is superseded. Raises Refused."""
        while self._writing is not None or self._may_write():
            self._idle.clear()
            await self._idle.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Store nothing more."""
        self._holding = True
        if self._writing is not None:
            self._writing.cancel()

    def _may_write(self) -> bool:
        return bool(self._waiting) and not self._holding and not self.stopped

    def _go_on(self) -> None:
        """Begin the next write as soon as this process has few enough in flight."""
        if self._writing is not None or self._is_queued or not self._may_write():
            return
        self._is_queued = True
        self._writer.pace.enter(self, self._begin, is_first=not any(self._numbers.values()))

    def _begin(self) -> bool:
        self._is_queued = False
        if not self._may_write():
            self._idle.set()
            return False
        self._writing = asyncio.create_task(self._write())
        self._writing.add_done_callback(self._on_written)
        return True

    def _on_written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        self._writer.pace.leave(self)
        if not writing.cancelled() and (failure := writing.exception()) is not None:
            self._failure = failure
            self.on_stop()
        self._idle.set()
        self._go_on()

    def _gather(self) -> dict[str, Any]:
        """Take the text of one event from what waits, as the fields of a Chunk or Thinking."""
        channel, name, done = self._waiting[0]
        if channel is None:
            del self._waiting[0]
            return BlockStarted(name=name, part=self.asked.part).model_dump()
        count = 0
        while count < len(self._waiting) and self._waiting[count][0] == channel:
            done = self._waiting[count][2]
            count += 1
        text = "".join(said[1] for said in self._waiting[:count])
        del self._waiting[:count]
        if len(text) > MAX_CHUNK_CHARACTERS:
            self._waiting.insert(0, (channel, text[MAX_CHUNK_CHARACTERS:], done))
            text, done = text[:MAX_CHUNK_CHARACTERS], False
        number, offset = self._numbers[channel], self._offsets[channel]
        self._numbers[channel] = number + 1
        self._offsets[channel] = offset + len(text)
        return {
            "type": "chunk" if channel == "answer" else "thinking",
            "stream_id": channel,
            "seq": number,
            "offset": offset,
            "text": text,
            "done": done,
            "channel": channel,
            "phase": channel,
            "action_seq": self.asked.turn - self.asked.part,
            **({"part": self.asked.part} if self.asked.part else {}),
            "attempt": self.asked.attempt,
        }

    async def _write(self) -> None:
        data, headers = self._writer.record_of(self._gather())
        while not self.superseded:
            guard = Guard(self._guard_subject, self._guard)
            try:
                self.stream_seq = self._since = await guarded_write.write(
                    self._writer.bus, self._subject, data, guard, since=self._since, headers=headers
                )
            except Outdated:
                await self.check()
            else:
                return

    async def check(self) -> None:
        """Read the log's tail. Abandon a superseded call; else note the new tail."""
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
