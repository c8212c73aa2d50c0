"""Follow a run until it ends, or a session: every stored record in order and once, then live records.

No consumer, no state on the server.

Rule 1: live records come from the republished subjects, so only stored records are shown.
Rule 2: each of the two subjects of a run has its own cursor. One cursor is not enough: a live message that is lost on
one subject is noticed only at that subject's next message, after later sequences of the other subject were shown.
Rule 3: a gap (`Nats-Last-Sequence`) is read back before later records are shown. A lost last message causes no gap, so
both tails are read back after a reconnect, after a full buffer, and every few seconds, less often while a run is quiet.
At the end of a run its stream is read back, unless the terminal record names the last sequence that was received.
Rule 4: a follower that subscribed before its run was requested reads nothing back at its start (`start`).
Rule 5: a slow listener costs little: its buffer is bounded in bytes, stored records are read in pages, and few pages
are read at once (`Bus.catch_ups`), so hundreds of new listeners do not delay other requests.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import ClassVar, Literal

import orjson
from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL
from contracts.wire import subjects
from contracts.wire.records import types_in
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.messaging.reads import checked, sequence_of

Kind = Literal["log", "stream"]
_FIRST_CHECK_S, _MAX_CHECK_S = 3.0, 12.0
"""First and longest pause between checks. A check costs two reads, so many listeners of quiet runs would keep a core
busy with short pauses."""
_MAX_BUFFERED_MESSAGES, _MAX_BUFFERED_BYTES = 4096, 1 << 20
"""Live messages that wait for a slow listener; further ones are dropped and read back later."""
_PAGE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored record. `log` and `stream`: the cursors after it; a session has no stream."""

    kind: Kind
    sequence: int
    data: bytes
    terminal: bool
    log: int
    stream: int


_Found = tuple[int, Kind, bytes, bool]
"""A record that is not passed on yet: sequence, kind, data, terminal."""


class Follower:
    """One listener of a log, and of a stream beside it."""

    _ENDS: ClassVar[frozenset[str]] = frozenset()
    """Types of events after which nothing follows."""

    def __init__(self, bus: Bus, stored_in: str, live: str, stored: dict[Kind, tuple[str, int]]) -> None:
        """`stored`: the subjects in the stream `stored_in`, and the sequences after which to begin."""
        self._bus = bus
        self._stored_in = stored_in
        self._live = live
        self._subject: dict[Kind, str] = {kind: subject for kind, (subject, _) in stored.items()}
        self._at: dict[Kind, int] = {kind: after for kind, (_, after) in stored.items()}
        self._subscription: Subscription | None = None
        self._buffer: deque[Msg] = deque()
        self._buffered_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        """Done when a record has arrived or a check is due."""
        self._stale = True
        """Messages may have been missed: read back both tails first."""
        self._ended = False
        self._check: asyncio.TimerHandle | None = None
        self._pause_s = 0.0
        self._received_at = 0.0

    async def start(self, *, is_new: bool = False) -> None:
        """Subscribe, unless that was done. Raises Unavailable.

        `is_new`: nothing of the run is stored yet. What is sent over the same connection afterwards reaches the server
        after the subscription, so no record is missed.
        """
        if self._subscription is None:
            self._subscription = await self._bus.receive(self._live, self._on_message)
            self._bus.on_reconnect.append(self.read_back)
            self._stale = not is_new
            self._check_in(_FIRST_CHECK_S)

    def read_back(self) -> None:
        """Read both tails back before anything else: messages may have been missed."""
        self._stale = True
        self._wake()

    async def stop(self) -> None:
        """Unsubscribe, if that was not done."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            self._bus.on_reconnect.remove(self.read_back)
            if self._check is not None:
                self._check.cancel()
            await subscription.stop()

    async def records(self) -> AsyncGenerator[list[StoredRecord], None]:
        """Yield every record after the cursors: all at once that have arrived, one or more.

        Ends after the terminal record. Raises Unavailable.
        """
        await self.start()
        try:
            while not self._ended:
                if found := await self._next():
                    if self._pause_s > _FIRST_CHECK_S:
                        self._check_in(_FIRST_CHECK_S)
                    yield found
        finally:
            await self.stop()

    def _on_message(self, message: Msg) -> None:
        if len(self._buffer) >= _MAX_BUFFERED_MESSAGES or self._buffered_bytes >= _MAX_BUFFERED_BYTES:
            self.read_back()
        else:
            self._received_at = asyncio.get_running_loop().time()
            self._buffered_bytes += len(message.data)
            self._buffer.append(message)
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _check_in(self, pause_s: float, left_s: float | None = None) -> None:
        """Read both tails back after `pause_s` without a record. One timer serves many waits."""
        if self._check is not None:
            self._check.cancel()
        self._pause_s = pause_s
        self._check = asyncio.get_running_loop().call_later(left_s or pause_s, self._on_check)

    def _on_check(self) -> None:
        left_s = self._received_at + self._pause_s - asyncio.get_running_loop().time()
        if left_s > 0:
            self._check_in(self._pause_s, left_s)
        else:
            self._check_in(min(2 * self._pause_s, _MAX_CHECK_S))
            self.read_back()

    async def _next(self) -> list[StoredRecord]:
        """Return the next records in order; none when there is something to read back, or nothing is new."""
        if not self._stale and not self._buffer:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self._stale:
            self._stale = False
            return await self._catch_up()
        found = self._arrived(self._at)
        return self._pass(await self._with_whole_stream(found) if found and found[-1][3] else found)

    async def _catch_up(self) -> list[StoredRecord]:
        """Read back both subjects and merge them with buffered live records.

        Of a long backlog it returns one page: as far as both subjects are known.
        """
        found: list[_Found] = []
        known_to: list[int] = []
        for kind, (part, is_whole) in zip(
            self._at, await asyncio.gather(*(self._page(kind) for kind in self._at)), strict=True
        ):
            found += part
            if not is_whole:
                known_to.append(self._newest(part, kind))
        if known_to:
            self._stale = True
            return self._pass([each for each in found if each[0] <= min(known_to)])
        # What was stored before the slower of the two reads has arrived live by now; without it the merge could be out
        # of order.
        await self._bus.barrier()
        found += self._arrived({kind: self._newest(found, kind) for kind in self._at})
        return self._pass(await self._with_whole_stream(found))

    async def _page(self, kind: Kind) -> tuple[list[_Found], bool]:
        """Return the records after the cursor of a subject, and whether these are all.

        Retries until the server answers.
        """
        reader = await self._bus.reader(self._stored_in)

        async def read() -> tuple[list[Msg], int]:
            async with self._bus.catch_ups:
                return await reader.page(self._subject[kind], self._at[kind] + 1, max_bytes=_PAGE_BYTES)

        page, left = await self._bus.until_answered(read)
        return self._found(kind, page), not (page and left)

    async def _with_whole_stream(self, found: list[_Found]) -> list[_Found]:
        """Add what was stored in the stream before a terminal record and has not arrived."""
        end = next((data for _, _, data, terminal in found if terminal), None)
        if end is None:
            return found
        newest, last = self._newest(found, "stream"), _last_in_stream(end)
        if last is not None and newest >= last:
            return found
        reader = await self._bus.reader(self._stored_in)
        return found + self._found("stream", await reader.messages(self._subject["stream"], newest + 1))

    def _newest(self, found: list[_Found], kind: Kind) -> int:
        return max((each[0] for each in found if each[1] == kind), default=self._at[kind])

    def _arrived(self, after: dict[Kind, int]) -> list[_Found]:
        """Take the buffered live records up to the first gap. Later ones wait until it was read back."""
        found: list[_Found] = []
        last = after.copy()
        while self._buffer:
            message = self._buffer[0]
            headers = message.headers or {}
            kind: Kind = "log" if message.subject.endswith(".log") else "stream"
            try:
                sequence, previous = int(headers["Nats-Sequence"]), int(headers["Nats-Last-Sequence"])
            except (KeyError, ValueError):  # It was not republished.
                sequence = previous = 0
            if last[kind] < previous < sequence:
                self._stale = True
                break
            self._buffer.popleft()
            self._buffered_bytes -= len(message.data)
            if sequence > last[kind]:
                found.append((sequence, kind, checked(message).data, self._is_terminal(headers)))
                last[kind] = sequence
        return found

    def _pass(self, found: list[_Found]) -> list[StoredRecord]:
        passed = []
        for sequence, kind, data, terminal in sorted(found):
            if self._ended or sequence <= self._at[kind]:
                continue
            self._at[kind] = sequence
            self._ended = terminal
            if data:  # Else it is no record: a forged one only has a place.
                passed.append(StoredRecord(kind, sequence, data, terminal, self._at["log"], self._at.get("stream", 0)))
        return passed

    def _found(self, kind: Kind, messages: list[Msg]) -> list[_Found]:
        return [(sequence_of(each), kind, each.data, self._is_terminal(each.headers or {})) for each in messages]

    def _is_terminal(self, headers: dict[str, str]) -> bool:
        return not self._ENDS.isdisjoint(types_in(headers))


class RunFollower(Follower):
    """One listener of one run."""

    _ENDS = TERMINAL

    def __init__(self, bus: Bus, tenant: str, run: str, *, log_after: int = 0, stream_after: int = 0) -> None:
        log, stream = subjects.log(tenant, run), subjects.stream(tenant, run)
        stored: dict[Kind, tuple[str, int]] = {"log": (log, log_after), "stream": (stream, stream_after)}
        super().__init__(bus, subjects.RUNS, subjects.live(tenant, run), stored)


class SessionFollower(Follower):
    """One listener of the log of one session, which has no end: a session that was deleted may start anew."""

    def __init__(self, bus: Bus, tenant: str, session_key: str, *, after: int = 0) -> None:
        log = subjects.session_log(tenant, session_key)
        live = subjects.live_session(tenant, session_key)
        super().__init__(bus, subjects.SESSIONS, live, {"log": (log, after)})


def _last_in_stream(record: bytes) -> int | None:
    """Return the last sequence of the run's stream, as its terminal record names it; None: it names none."""
    try:
        last = orjson.loads(record)["events"][-1]["last_stream_seq"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return last if isinstance(last, int) else None
