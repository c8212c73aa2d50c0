"""List a tenant's runs or sessions, newest first, from the index that planners write (KV bucket `runs`).

The last part of a key is a time and an id, so sorted keys are pages: a cursor is a key, and a page begins below it. The
time is that of the run's request, or of the session's first one. Runs that no planner has opened yet are not listed.

NATS finds no keys by their fields or order. So the gateway keeps the keys, with their fields, in a temporary SQLite
database (docs/decisions/0017-lists.md), as far back as somebody has asked for.

Rule 1: it is brought up to date by each request, and nobody follows the bucket in between.
Rule 2: it only proposes. What is shown is read from the bucket, where entries also vanish without a marker.
Rule 3: no request reads more than about `MAX_ENTRIES_READ` entries. Its page is short then, and its cursor continues.
"""

import asyncio
import base64
import binascii
import itertools
import re
import sqlite3
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from contracts.runs.requests import RunStatus
from contracts.sessions.records import SessionEntry
from contracts.wire import keys
from contracts.wire.subject import Subject
from contracts.wire.subjects import bucket_stream
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, Problem
from services.gateway.runs.reader import RunReader
from services.gateway.sessions.reader import SessionReader
from services.messaging.connection import Bus, unix_seconds
from services.messaging.errors import BusError
from services.messaging.kv import Bucket, Entry

PAGE_CURSOR = r"^[A-Za-z0-9_-]{30}$"
"""The 22 bytes of a key, in base64url."""

MAX_ENTRIES_READ = 5000
_PAGE_ENTRIES = 500
_MAX_LAG_S, _LAG_S = 1.0, 0.002
_MAX_ANSWERED = 20
"""Runs of a tenant that the next list waits for: those of a program that asks and lists, not of all traffic."""
_MAX_WINDOW = 1 << 14
_MIN_WINDOW_COST = 100
"""A window that is nearly empty counts like so many entries."""
_CLOCKS_DIFFER_MS = 5000
"""An entry is stored after its run was requested, by clocks that differ by less."""
_KEY_DIGITS, _ID_DIGITS = 44, 32
_KEY = re.compile(rf"[0-9a-f]{{{_KEY_DIGITS}}}", re.ASCII)
_ABOVE_ALL, _BELOW_ALL = b"\xff" * 22, bytes(22)
_FIELDS = ("status", "waits", "session_id", "user_id", "agent")
_TABLE = (
    f"CREATE TABLE entries (place, key, {', '.join(_FIELDS)}, PRIMARY KEY (place, key)) WITHOUT ROWID;"
    + "".join(f"CREATE INDEX by_{field} ON entries (place, {field}, key);" for field in _FIELDS)
    + "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF"
)
_ROWS: dict[type[BaseModel], Subject] = {RunStatus: keys.run_entry, SessionEntry: keys.session_entry}

Listed = TypeVar("Listed", bound=RunStatus | SessionEntry)
Wanted = str | tuple[str, ...]
_Answered = tuple[float, Caller]
_Known = dict[tuple[type[BaseModel], str], _Answered]


class Index:
    """Reads the index. `runs` and `sessions`: their logs."""

    def __init__(self, bus: Bus, runs: RunReader, sessions: SessionReader) -> None:
        self._bus, self._runs, self._sessions = bus, runs, sessions
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=2)
        self._known = sqlite3.connect("")
        """The entries of the sequences from `_begin` to `_end`. Texts are hashes here, which keeps rows short."""
        self._known.executescript(_TABLE)
        weakref.finalize(self, self._known.close)
        self._first = self._begin = self._end = 0
        self._window = _PAGE_ENTRIES
        self._complete_from = _ABOVE_ALL
        """No key from this one on is missing."""
        self._reading = asyncio.Lock()
        self._answered: dict[str, _Known] = {}
        """Tenant -> what to list, and a run that an answer has named a moment ago: until when, and to whom."""
        bus.on_reconnect.append(self._forget)

    async def page(
        self, kind: type[Listed], caller: Caller, limit: int, cursor: str | None = None, **wanted: Wanted | None
    ) -> tuple[list[Listed], str | None]:
        """Return up to `limit` entries after `cursor` that the caller may see, and the cursor of the next page.

        The cursor is None after the oldest entry. `wanted`: the value of a field, or those that it may have; None: any.
        Raises InvalidInput and BusError.
        """
        fields = {name: (of,) if isinstance(of, str) else of for name, of in wanted.items() if of is not None}
        if caller.user_id is not None and fields.setdefault("user_id", (caller.user_id,)) != (caller.user_id,):
            return [], None
        before: bytes | None = _decoded(cursor) if cursor else _ABOVE_ALL
        place = _ROWS[kind].pattern(tenant=caller.tenant).removesuffix("*")
        found: list[Listed] = []
        budget = MAX_ENTRIES_READ
        known = self._answered.get(caller.tenant, {})
        answered = [each for each in known.items() if each[0][0] is kind]
        await asyncio.gather(*(self._caught_up(known, *each) for each in answered))
        await self._catch_up()
        while before is not None and len(found) < limit:
            missing, complete_from = limit - len(found), self._complete_from
            older = self._older(place, before, fields, missing + 1)
            is_cut = len(older) <= missing and complete_from != _BELOW_ALL
            if is_cut and budget > 0:
                budget -= await self._read_back()
                continue
            before = older[missing - 1] if len(older) > missing else min(before, complete_from) if is_cut else None
            listed = await self._shown(kind, caller.tenant, place, older[:missing])
            found += [each for each in listed if all(getattr(each, name) in fields[name] for name in fields)]
            budget -= len(older)
            if budget <= 0:
                break
        return found, base64.urlsafe_b64encode(before).decode().rstrip("=") if before else None

    def answered(self, caller: Caller, run: str) -> None:
        """Have the next lists of this process show a run as an answer to the caller has."""
        known = self._answered.setdefault(caller.tenant, {})
        for kind in _ROWS:
            known.pop((kind, run), None)
            known[kind, run] = asyncio.get_running_loop().time() + _MAX_LAG_S, caller
        while len(known) > _MAX_ANSWERED * len(_ROWS):
            del known[next(iter(known))]

    async def _caught_up(self, known: _Known, key: tuple[type[BaseModel], str], found: _Answered) -> None:
        """Return once lists show a run of `known`, then forget it: until then others' lists wait too."""
        until, caller = found
        with suppress(BusError, Problem):
            if until > asyncio.get_running_loop().time():
                status = (await self._runs.current(caller, key[1])).status()
                if key[0] is RunStatus:
                    await self.follows(caller.tenant, status.requested_at, status)
                elif status.session_id is not None:
                    await _until(partial(self._has_session, caller.tenant, status.session_id, status))
        if known.get(key) is found:
            del known[key]

    async def follows(self, tenant: str, requested_at: int, status: RunStatus) -> None:
        """Return once lists show a run as `status` does, which its log says: planners write its entry a moment later.

        Lists may lag behind all the same when that takes longer than a second.
        """
        key = keys.run_key(tenant, requested_at, status.run_id)

        async def has_run() -> bool:
            entry = (await self._bucket.get(key)).parsed(RunStatus)
            return entry is not None and (entry.status, entry.waits) == (status.status, status.waits)

        await _until(has_run)

    async def _has_session(self, tenant: str, session_id: str, status: RunStatus) -> bool:
        """Whether the entry of a session is newer than the end of a run; also of one that is deleted."""
        session = await self._sessions.find(tenant, session_id, is_current=True)
        if session is None:
            return True
        key = keys.session_entry_key(tenant, session.created_at, keys.session_key(session_id))
        entry = (await self._bucket.get(key)).parsed(SessionEntry)
        return entry is not None and entry.updated_at >= (status.ended_at or 0)

    def _older(self, place: str, before: bytes, fields: dict[str, tuple[str, ...]], limit: int) -> list[bytes]:
        """Return the next keys below `before`, as far as none is missing between them."""
        query = "SELECT key FROM entries WHERE place = ? AND key < ? AND key >= ?"
        query += "".join(f" AND {name} IN ({', '.join('?' * len(of))})" for name, of in fields.items())
        query += " ORDER BY key DESC LIMIT ?"
        values = (hash(place), before, self._complete_from, *map(hash, itertools.chain(*fields.values())), limit)
        return [key for (key,) in self._known.execute(query, values)]

    async def _shown(self, kind: type[Listed], tenant: str, place: str, older: list[bytes]) -> list[Listed]:
        """Return those entries that still exist, and forget the others."""
        named = [key.hex() for key in older]
        deletions = {}
        if kind is RunStatus:
            deletions = {key: keys.run_deletion(tenant, key[-_ID_DIGITS:]) for key in named}
        stored = await self._bucket.get_many([*(place + key for key in named), *deletions.values()])
        shown, gone = [], []
        for key in named:
            entry = stored.get(place + key)
            value = entry.parsed(kind) if entry and deletions.get(key) not in stored else None
            if value is not None:
                shown.append(value)
            else:  # Deleted, or written by another version.
                gone.append((hash(place), bytes.fromhex(key)))
        self._remove(gone)
        return shown

    async def _catch_up(self) -> None:
        """Read what was written since the last time. Where that is too much, begin anew at the end of the bucket."""
        async with self._reading:
            budget = MAX_ENTRIES_READ
            while self._end and budget > 0:
                if not (page := await self._bucket.page(">", self._end, _PAGE_ENTRIES)):
                    return
                self._take(page)
                self._end = page[-1].sequence
                budget -= len(page)
            state = (await self._bus.api(f"STREAM.INFO.{bucket_stream(keys.RUNS_BUCKET)}", {}))["state"]
            with self._known:
                self._known.execute("DELETE FROM entries")
            self._first, self._end, self._begin = state["first_seq"], state["last_seq"], state["last_seq"] + 1
            self._complete_from, self._window = _ABOVE_ALL, _PAGE_ENTRIES

    async def _read_back(self) -> int:
        """Read the entries before those that are known, and return about how much work that was."""
        async with self._reading:
            begin = after = max(self._first, self._begin - self._window)
            read: list[Entry] = []
            while after < self._begin:
                page = await self._bucket.page(">", after - 1, min(_PAGE_ENTRIES, self._begin - after))
                after = page[-1].sequence + 1 if page else self._begin
                read += [entry for entry in page if entry.sequence < self._begin]
            self._take(read)
            if self._begin > self._end:  # A replica may lag behind.
                self._end = read[-1].sequence if read else begin - 1
            self._begin = begin
            # Old parts of the bucket are mostly gone.
            is_dense = len(read) * 2 > self._window
            self._window = _PAGE_ENTRIES if is_dense else min(self._window * 2, _MAX_WINDOW)
            if begin <= self._first:
                self._complete_from = _BELOW_ALL
            elif read:
                stored_ms = int(unix_seconds(read[0].stored_at) * 1000) + _CLOCKS_DIFFER_MS
                self._complete_from = stored_ms.to_bytes(6, "big") + bytes(16)
            return max(len(read), _MIN_WINDOW_COST)

    def _take(self, entries: Iterable[Entry]) -> None:
        """Remember entries, and forget those that are delete markers."""
        rows: list[tuple[Any, ...]] = []
        gone: list[tuple[int, bytes]] = []
        for entry in entries:
            place, key = entry.key[:-_KEY_DIGITS], entry.key[-_KEY_DIGITS:]
            if not place.endswith(".") or not _KEY.fullmatch(key):
                continue  # Something else is kept there.
            row = (hash(place), bytes.fromhex(key))
            try:
                fields = orjson.loads(entry.data)
                rows.append((*row, *(hash(fields.get(name)) for name in _FIELDS)))
            except (ValueError, AttributeError, TypeError):
                gone.append(row)
        with self._known:
            self._known.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._remove(gone)

    def _remove(self, gone: list[tuple[int, bytes]]) -> None:
        with self._known:
            self._known.executemany("DELETE FROM entries WHERE place = ? AND key = ?", gone)

    def _forget(self) -> None:
        """Begin anew with the next request: a server that was restored counts its messages again."""
        self._end = 0


async def _until(shown: Callable[[], Awaitable[bool]]) -> None:
    """Return once that is shown, or after a second."""
    pause_s = _LAG_S
    with suppress(TimeoutError, BusError):
        async with asyncio.timeout(_MAX_LAG_S):
            while not await shown():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.05)


def _decoded(cursor: str) -> bytes:
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != _KEY_DIGITS // 2:
        raise InvalidInput("cursor", "is not the `next_cursor` of an earlier page")
    return key
