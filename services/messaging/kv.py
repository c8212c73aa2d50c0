"""A KV bucket: read, write, write on a condition, delete, list and watch its values. One entry per key.

Rule 1: a conditional write names the revision of the entry that it depends on. If the entry has changed, nothing is
written, and Outdated is raised.
Rule 2: any replica answers a read, so it may be stale. Where stale data would lose something, `get_from_leader` asks
the leader.
Rule 3: a revision of an entry is its sequence in the stream of the bucket.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nats.aio.msg import Msg
from pydantic import BaseModel

from contracts.wire import subjects
from contracts.wire.base import parsed
from services.messaging import guarded_write
from services.messaging.connection import Bus, unix_seconds
from services.messaging.errors import Outdated, Unavailable
from services.messaging.guarded_write import Guard
from services.messaging.nats_connection import Body, Subscription, encoded
from services.messaging.reads import sequence_of

M = TypeVar("M", bound=BaseModel)

_DELETE_MARKER_TTL_S = 3600
_KEYS_PER_READ = 500
_PAGE_ENTRIES = 1000
_NOTICE_LEADS_S = 0.5
"""By so much the notice of a write may come before the write can be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a key. Without a value `data` is empty, and `sequence` is that of its deletion, or 0."""

    key: str
    sequence: int
    data: bytes
    expires_at: float = float("inf")
    """Unix seconds by the server's clock, which removes expired entries late."""
    stored_at: str = ""
    """As NATS writes it (`clock.unix_seconds`); only of entries that were read together."""

    def parsed(self, kind: type[M]) -> M | None:
        """Return the value; None without one, and for one that another version wrote."""
        return parsed(kind, self.data) if self.data else None


class Bucket:
    """One bucket. `attempts`: how often an operation is tried; None: until NATS answers.

    Methods raise Unavailable or Unsure when NATS does not answer, and Refused.
    """

    def __init__(self, bus: Bus, name: str, *, attempts: int | None = None) -> None:
        self._bus = bus
        self._name = name
        self._attempts = attempts
        self._stream = subjects.bucket_stream(name)

    def _subject(self, key: str) -> str:
        return subjects.bucket_value(self._name, key)

    async def get(self, key: str) -> Entry:
        """Return an entry from any replica."""
        found = await self._bus.last(self._stream, self._subject(key), self._attempts)
        return Entry(key, sequence_of(found), found.data) if found is not None else Entry(key, 0, b"")

    async def get_from_leader(self, key: str) -> Entry:
        """Return an entry from the leader, in one attempt."""
        found = await self._bus.get_from_leader(self._stream, {"last_by_subj": self._subject(key)})
        return Entry(key, *found) if found is not None else Entry(key, 0, b"")

    async def put(self, key: str, value: Body, *, ttl_s: int | None = None) -> int:
        """Write an entry unconditionally, and return its revision."""
        subject, headers = self._subject(key), _ttl(ttl_s)
        return await self._bus.until_answered(lambda: self._bus.publish(subject, value, headers), self._attempts)

    async def create(self, key: str, value: Body) -> int:
        """Write an entry if there is none, and return its revision. Raises Outdated."""
        return await self.update(key, value, revision=0)

    async def update(
        self, key: str, value: Body, *, revision: int, of: str | None = None, ttl_s: int | None = None
    ) -> int:
        """Write an entry if `revision` is its own, or that of the key `of`; return the new one. Raises Outdated."""
        guard = Guard(self._subject(of or key), revision)
        since = None if of is None else 0  # A key has one entry, its newest.
        return await guarded_write.write(
            self._bus,
            self._subject(key),
            encoded(value),
            guard,
            since=since,
            headers=_ttl(ttl_s),
            attempts=self._attempts,
        )

    async def get_or_make(self, key: str, made: M) -> M:
        """Write an entry unless there is one, and return the one that is there then."""
        while True:
            entry = await self.get_from_leader(key)
            if (known := entry.parsed(type(made))) is not None:
                return known
            try:
                await self.update(key, made, revision=entry.sequence)
            except Outdated:
                continue  # Another process has come first.
            return made

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete an entry, if it has this `revision` where one is given. Raises Outdated. Its marker stays an hour."""
        headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub", **_ttl(_DELETE_MARKER_TTL_S)}
        subject = self._subject(key)
        if revision is None:
            await self._bus.until_answered(lambda: self._bus.publish(subject, b"", headers), self._attempts)
        else:
            guard = Guard(subject, revision)
            await guarded_write.write(self._bus, subject, b"", guard, headers=headers, attempts=self._attempts)

    async def purge(self, key: str, *, upto: int | None = None) -> None:
        """Remove an entry without a delete marker, up to a revision if one is given."""
        body: dict[str, Any] = {"filter": self._subject(key)}
        await self._bus.api(f"STREAM.PURGE.{self._stream}", body if upto is None else {**body, "seq": upto + 1})

    async def latest(self, *patterns: str) -> list[Entry]:
        """Return the entries that match, from any replica. At most 1,024 patterns and entries, in one attempt."""
        reader = await self._bus.reader(self._stream)
        found = await reader.latest(*map(self._subject, patterns))
        return [_entry(message) for message in found if message.data]

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Entry]:
        """Return those entries that exist, by key, from any replica."""
        parts = [wanted[start : start + _KEYS_PER_READ] for start in range(0, len(wanted), _KEYS_PER_READ)]
        return {entry.key: entry for part in parts for entry in await self.latest(*part)}

    async def page(self, pattern: str, after: int, limit: int = _PAGE_ENTRIES) -> list[Entry]:
        """Return the next entries in the order of their last change, delete markers included; empty after the last."""
        reader = await self._bus.reader(self._stream)
        found, _ = await reader.page(self._subject(pattern), after + 1, limit)
        return [_entry(message) for message in found]

    async def pages(self) -> AsyncIterator[list[Entry]]:
        """Yield all entries in pages, in the order of their last change. Delete markers are included, without data.

        It reads all keys, since the server needs a third of a second to filter a page at half a million entries.
        Entries that change during the iteration are left out: a caller that changes entries would otherwise never
        finish.
        """
        end = int((await self._bus.api(f"STREAM.INFO.{self._stream}", {}))["state"]["last_seq"])
        after = 0
        while after < end and (found := await self.page(">", after)):
            after = found[-1].sequence
            yield [entry for entry in found if entry.sequence <= end]

    async def matching(self, pattern: str, after: int, limit: int) -> list[Entry]:
        """Return the next entries that match. Fast for up to 1,024 matches; beyond that it reads the whole bucket."""
        try:
            found = await self.latest(pattern)
        except Unavailable:  # Too many matches, or no answer.
            found = []
            while len(found) < limit and (page := await self.page(pattern, after, limit)):
                # Pages contain delete markers too, so a short page is not the last.
                after = page[-1].sequence
                found += [entry for entry in page if entry.data]
            return found[:limit]
        later = (entry for entry in found if entry.sequence > after)
        return sorted(later, key=lambda entry: entry.sequence)[:limit]

    async def keys(self, pattern: str) -> list[str]:
        """Return all keys that match, however many, in no particular order."""
        return [*map(subjects.bucket_key, await self._bus.subjects_in(self._stream, self._subject(pattern)))]

    async def watch(
        self, pattern: str, on_change: Callable[[str, bytes], None], *, reads_back: bool = False
    ) -> Subscription:
        """Call `on_change` with key and value of each write, also of one that the server rejects.

        `reads_back`: what is called reads the bucket, and is called a second time when the write can be read.
        """
        loop = asyncio.get_running_loop()

        async def on_message(message: Msg) -> None:
            if "Nats-Subject" in (message.headers or {}):
                return  # Not written, but an answer of the server that somebody has sent here: forged.
            change = subjects.bucket_key(message.subject), message.data
            on_change(*change)
            if reads_back:
                loop.call_later(_NOTICE_LEADS_S, on_change, *change)

        return await self._bus.subscribe(self._subject(pattern), on_message)


def _entry(message: Msg) -> Entry:
    headers = message.headers or {}
    ttl, stored = headers.get("Nats-TTL", ""), headers.get("Nats-Time-Stamp", "")
    expires_at = unix_seconds(stored) + int(ttl) if stored and ttl.isdecimal() else float("inf")
    return Entry(subjects.bucket_key(headers["Nats-Subject"]), sequence_of(message), message.data, expires_at, stored)


def _ttl(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"Nats-TTL": str(max(1, seconds))}
