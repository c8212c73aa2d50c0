"""Follow a run: every stored record in order and once, then live records, until it ends.

No consumer, no state on the server.

Rule 1: live records come from the republished subjects, so only stored records are shown.
Rule 2: each of the two subjects of a run has its own cursor. One cursor is not enough: a live message that is lost on
one subject is noticed only at that subject's next message, after later sequences of the other subject were shown.
Rule 3: a gap (`Nats-Last-Sequence`) is read back before later records are shown. A lost last message causes no gap, so
both tails are read back after a reconnect, after a full buffer, at the end of the run, and every few seconds, less
often while a run is quiet.
Rule 4: a slow listener costs little: its buffer is bounded in bytes, stored records are read in pages, and few pages
are read at once (`Bus.catch_ups`), so hundreds of new listeners do not delay other requests.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from nats.aio.msg import Msg

from contracts import subjects
from contracts.events import TERMINAL
from contracts.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of

Kind = Literal["log", "stream"]
_KINDS: tuple[Kind, Kind] = ("log", "stream")
_FIRST_CHECK_S, _MAX_CHECK_S = 3.0, 12.0
"""Longest pause between checks. Each costs two reads; a thousand listeners of quiet runs would keep a core busy."""
_MAX_BUFFERED_MESSAGES, _MAX_BUFFERED_BYTES = 4096, 1 << 20
"""Live messages that wait for a slow listener; further ones are dropped and read back later."""
_PAGE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One stored record. `log` and `stream`: the cursors after it."""

    kind: Kind
    sequence: int
    data: bytes
    terminal: bool
    log: int
    stream: int


_Found = tuple[int, Kind, bytes, bool]


class RunFollower:
    """One listener of one run."""

    def __init__(self, bus: Bus, tenant: str, run: str, *, log_after: int = 0, stream_after: int = 0) -> None:
        self._bus = bus
        self._live = subjects.live(tenant, run)
        self._subject: dict[Kind, str] = {"log": subjects.log(tenant, run), "stream": subjects.stream(tenant, run)}
        self._at: dict[Kind, int] = {"log": log_after, "stream": stream_after}
        self._buffer: asyncio.Queue[Msg] = asyncio.Queue()
        self._buffered_bytes = 0
        self._stale = True
        """Messages may have been missed: read back both tails first."""
        self._ended = False
        self._pause_s = _FIRST_CHECK_S

    async def records(self, idle_s: float = 15.0) -> AsyncGenerator[StoredRecord | None, None]:
        """Yield every record after the cursors, and None after `idle_s` seconds without one.

        Ends after the terminal record.
        """
        subscription = await self._bus.subscribe(self._live, self._on_message)
        self._bus.on_reconnect.append(self._on_reconnect)
        try:
            await self._bus.barrier()
            quiet_s = 0.0
            while not self._ended:
                found = await self._next()
                for record in found:
                    yield record
                quiet_s = 0.0 if found else quiet_s + self._pause_s
                self._pause_s = (
                    _FIRST_CHECK_S
                    if found
                    else min(2 * self._pause_s, _MAX_CHECK_S, max(idle_s - quiet_s, _FIRST_CHECK_S))
                )
                if quiet_s >= idle_s:
                    quiet_s = 0.0
                    yield None
        finally:
            self._bus.on_reconnect.remove(self._on_reconnect)
            await subscription.stop()

    async def _on_message(self, message: Msg) -> None:
        if self._buffer.qsize() >= _MAX_BUFFERED_MESSAGES or self._buffered_bytes >= _MAX_BUFFERED_BYTES:
            self._stale = True
        else:
            self._put(message)

    def _put(self, message: Msg) -> None:
        self._buffered_bytes += len(message.data)
        self._buffer.put_nowait(message)

    def _taken(self, message: Msg) -> Msg:
        self._buffered_bytes -= len(message.data)
        return message

    async def _on_reconnect(self) -> None:
        self._stale = True

    async def _next(self) -> list[StoredRecord]:
        """Return the next records in order; empty after a quiet period."""
        if self._stale:
            self._stale = False
            return await self._catch_up()
        try:
            async with asyncio.timeout(self._pause_s):
                message = self._taken(await self._buffer.get())
        except TimeoutError:
            return await self._catch_up()
        sequences = _sequences(message)
        if sequences is None:
            return []
        (sequence, previous), kind = sequences, _kind(message.subject)
        terminal = _is_terminal(message.headers or {})
        if sequence <= self._at[kind]:
            return []
        if previous > self._at[kind] or terminal:
            return await self._catch_up(upto=sequence if terminal else None)
        return self._pass([(sequence, kind, message.data, terminal)])

    async def _catch_up(self, upto: int | None = None) -> list[StoredRecord]:
        """Read back both subjects and merge them with buffered live records.

        `upto`: the terminal record, which is already stored.

        Of a long backlog it returns one page: as far as both subjects are known.
        """
        found: dict[int, _Found] = {}
        known_to: list[int] = []
        for kind, (part, is_whole) in zip(
            _KINDS, await asyncio.gather(*(self._page(kind) for kind in _KINDS)), strict=True
        ):
            found |= part
            if not is_whole:
                known_to.append(self._newest(part, kind))
        if known_to:
            self._stale = True
            return self._pass([found[sequence] for sequence in sorted(found) if sequence <= min(known_to)])
        if upto is None:
            # What was stored before the slower of the two reads has arrived live by now; without it the merge could be
            # out of order.
            await self._bus.barrier()
            self._merge(found)
            if any(each[3] for each in found.values()):
                # The stream may have been read before its last message, whose copy may be lost.
                found |= await self._read("stream", self._newest(found, "stream"))
        return self._pass([found[sequence] for sequence in sorted(found)])

    async def _page(self, kind: Kind) -> tuple[dict[int, _Found], bool]:
        """Return the records after the cursor of a subject, and whether these are all.

        Retries until the server answers.
        """
        reader = await self._bus.reader(subjects.RUNS)

        async def read() -> tuple[list[Msg], int]:
            async with self._bus.catch_ups:
                return await reader.page(self._subject[kind], self._at[kind] + 1, max_bytes=_PAGE_BYTES)

        page, left = await self._bus.until_answered(read)
        return _found(kind, page), not (page and left)

    async def _read(self, kind: Kind, after: int) -> dict[int, _Found]:
        return _found(kind, await (await self._bus.reader(subjects.RUNS)).messages(self._subject[kind], after + 1))

    def _newest(self, found: dict[int, _Found], kind: Kind) -> int:
        return max((each[0] for each in found.values() if each[1] == kind), default=self._at[kind])

    def _merge(self, found: dict[int, _Found]) -> None:
        """Add buffered live records up to the first gap. Later ones wait until the gap was read back."""
        last = {kind: self._newest(found, kind) for kind in _KINDS}
        waiting: list[Msg] = []
        while not self._buffer.empty():
            message = self._taken(self._buffer.get_nowait())
            if (sequences := _sequences(message)) is None:
                continue
            (sequence, previous), kind = sequences, _kind(message.subject)
            if waiting or last[kind] < previous < sequence:
                waiting.append(message)
            elif sequence > last[kind]:
                found[sequence] = (sequence, kind, message.data, _is_terminal(message.headers or {}))
                last[kind] = sequence
        for message in waiting:
            self._put(message)

    def _pass(self, found: list[_Found]) -> list[StoredRecord]:
        passed = []
        for sequence, kind, data, terminal in found:
            if self._ended or sequence <= self._at[kind]:
                continue
            self._at[kind] = sequence
            self._ended = terminal
            passed.append(StoredRecord(kind, sequence, data, terminal, self._at["log"], self._at["stream"]))
        return passed


def _found(kind: Kind, messages: list[Msg]) -> dict[int, _Found]:
    return {
        sequence_of(each): (sequence_of(each), kind, each.data, _is_terminal(each.headers or {})) for each in messages
    }


def _sequences(message: Msg) -> tuple[int, int] | None:
    """Return the sequences of a republished record and its predecessor; None for a message that was not republished."""
    headers = message.headers or {}
    try:
        return int(headers["Nats-Sequence"]), int(headers["Nats-Last-Sequence"])
    except (KeyError, ValueError):
        return None


def _kind(subject: str) -> Kind:
    return "log" if subject.endswith(".log") else "stream"


def _is_terminal(headers: dict[str, str]) -> bool:
    return not TERMINAL.isdisjoint(headers.get(EVENTS_HEADER, "").split(","))
