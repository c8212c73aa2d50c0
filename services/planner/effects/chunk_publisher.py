"""Stores the chunks of a model's reply, for the run's listeners.

Rule 1: every chunk is fenced by the log's tail, so a superseded attempt cannot store one. A refused chunk tells a
streaming planner that it was superseded or cancelled.
Rule 2: one append is in flight at a time. Tokens gather meanwhile, and its acknowledgement releases them as the next
chunk. So the first token leaves at once, and under load chunks become larger, not later.
Rule 3: what has gathered when the reply ends may be held back, to be stored with the decision (`last_words`).
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from contracts import subjects
from contracts.events import Asked, Chunk, Thinking
from contracts.records import EVENTS_HEADER, Record
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.guarded_write import Guard
from services.planner.effects.ownership_watch import Address, Tail

Channel = Literal["answer", "thinking"]
MAX_HELD_CHARACTERS = 16_000
"""Longest text that is stored with the decision. Longer text is stored as chunks, so that the decision has room."""
MAX_CHUNK_CHARACTERS = 150_000
"""Longest text of one chunk: a record holds one megabyte, and a character takes up to six bytes."""


class ChunkPublisher:
    """Stores chunks one after another, and gathers text in between."""

    def __init__(self, bus: Bus, address: Address, asked: Asked, guard: int, tail: Tail, ttl_s: int) -> None:
        self._bus = bus
        self._subject = subjects.stream(address.tenant, address.run)
        self._guard_subject = subjects.log(address.tenant, address.run)
        self.asked = asked
        self._guard = self._since = guard
        self._tail = tail
        self._ttl = str(ttl_s)
        self._waiting: list[tuple[Channel, str, bool]] = []
        self._sending: asyncio.Task[None] | None = None
        self._numbers: dict[Channel, int] = {"answer": 0, "thinking": 0}
        self._failure: BaseException | None = None
        self._holding = False
        self.stream_seq = 0
        """Sequence of the newest chunk that was stored; 0: none."""
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
        self._start()

    def hold(self) -> None:
        """Store no further chunk: what waits, and what is said from now on, is for `last_words`."""
        self._holding = True

    def release(self) -> None:
        """Store what was held back."""
        self._holding = False
        self._start()

    @property
    def is_brief(self) -> bool:
        """Whether the text that waits is short enough to be stored with the decision."""
        return sum(len(said[1]) for said in self._waiting) <= MAX_HELD_CHARACTERS

    def last_words(self) -> tuple[Chunk | Thinking, ...]:
        """Take the text that was held back, as the events that follow the stored ones."""
        words = []
        while self._waiting:
            words.append(self._gather())
        return tuple(words)

    def has_text(self, channel: Channel) -> bool:
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

    def _start(self) -> None:
        if self._may_send() and not self.stopped and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._sent)

    def _may_send(self) -> bool:
        return bool(self._waiting) and not self._holding

    async def _send(self) -> None:
        while self._may_send() and not self.superseded:
            await self._store(Record(events=[self._gather()]))

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled() and (failure := sending.exception()) is not None:
            self._failure = failure
            self.on_stop()

    def _gather(self) -> Chunk | Thinking:
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
        return kind(seq=number, text=text, done=done, action_seq=self.asked.turn, attempt=self.asked.attempt)

    async def _store(self, record: Record) -> None:
        data = record.model_dump_json().encode()
        # A stalled server may read a write and its repetition together. The guard alone would accept both.
        headers = {EVENTS_HEADER: record.types(), "Nats-Msg-Id": record.id, "Nats-TTL": self._ttl}
        while not self.superseded:
            guard = Guard(self._guard_subject, self._guard)
            try:
                self.stream_seq = self._since = await guarded_write.write(
                    self._bus, self._subject, data, guard, since=self._since, headers=headers
                )
            except Outdated:
                await self.check()
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
