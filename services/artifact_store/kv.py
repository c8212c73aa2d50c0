"""The KV bucket of the store: read, conditional write, delete, list. One entry per key.

Rule 1: a conditional write names the sequence of the entry that it depends on. If the entry has changed, nothing is
written.
Rule 2: any replica answers a read, so it may be stale. Where stale data would lose something, `read_from_leader` asks
the leader.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass

from contracts import keys
from services.artifact_store.errors import EntryChanged
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of
from services.messaging.errors import NOT_FOUND, WRONG_LAST_SEQUENCE, BusError, Refused, Unavailable, Unsure
from services.shared.artifacts.errors import StorageUnavailable

_STREAM = f"KV_{keys.ARTIFACTS_BUCKET}"
_PREFIX = f"$KV.{keys.ARTIFACTS_BUCKET}."
_ATTEMPTS = 3
_RETRY_S = 0.1
_DELETE_MARKER_TTL_S = 3600
_KEYS_PER_READ = 500
_PAGE_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a key. Without an entry `data` is empty, and `sequence` is that of its deletion, or 0."""

    key: str
    sequence: int
    data: bytes


class KeyValueStore:
    """The entries of the bucket. All methods raise StorageUnavailable when NATS does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, key: str) -> Entry:
        """Return an entry from any replica."""
        try:
            found = await self._bus.last(_STREAM, _PREFIX + key, attempts=_ATTEMPTS)
        except BusError as error:
            raise StorageUnavailable("NATS does not answer") from error
        return Entry(key, sequence_of(found), found.data) if found is not None else Entry(key, 0, b"")

    async def read_from_leader(self, key: str) -> Entry:
        """Return an entry from the leader."""
        try:
            answer = await self._bus.api(f"STREAM.MSG.GET.{_STREAM}", {"last_by_subj": _PREFIX + key})
        except Refused as error:
            if error.code in NOT_FOUND:
                return Entry(key, 0, b"")
            raise StorageUnavailable("JetStream refused a read") from error
        except BusError as error:
            raise StorageUnavailable("NATS does not answer") from error
        message = answer["message"]
        return Entry(key, int(message["seq"]), base64.b64decode(message.get("data") or ""))

    async def put(self, key: str, data: bytes, *, ttl_s: int | None = None) -> int:
        """Write an entry unconditionally, and return its sequence."""
        return await self._publish(key, data, _ttl(ttl_s))

    async def write(self, key: str, data: bytes, *, after: int) -> int:
        """Write an entry if its sequence is `after` (0: it does not exist), and return the new sequence.

        Raises EntryChanged.
        """
        return await self._publish(key, data, {"Nats-Expected-Last-Subject-Sequence": str(after)})

    async def write_if_unchanged(self, key: str, data: bytes, *, other: str, at: int, ttl_s: int | None = None) -> int:
        """Write an entry if the sequence of *another* key is still `at`. Raises EntryChanged."""
        guard = {
            "Nats-Expected-Last-Subject-Sequence": str(at),
            "Nats-Expected-Last-Subject-Sequence-Subject": _PREFIX + other,
        }
        return await self._publish(key, data, {**guard, **_ttl(ttl_s)})

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """Delete an entry, unconditionally or if its sequence is `after`.

        Raises EntryChanged. Its delete marker expires after an hour.
        """
        headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub", **_ttl(_DELETE_MARKER_TTL_S)}
        if after is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(after)
        await self._publish(key, b"", headers)

    async def _publish(self, key: str, data: bytes, headers: dict[str, str]) -> int:
        unsure = False
        for _ in range(_ATTEMPTS):
            try:
                return await self._bus.publish(_PREFIX + key, data, headers)
            except Refused as error:
                if error.code != WRONG_LAST_SEQUENCE:
                    raise StorageUnavailable("JetStream refused a write") from error
                if not unsure:
                    raise EntryChanged from None
            except Unsure:  # It may be stored: read it back. On a cluster another guarded write may be in progress.
                unsure = True
                await asyncio.sleep(_RETRY_S)
            found = await self.read_from_leader(key)
            if found.data == data and found.sequence:
                return found.sequence
            if "Nats-Expected-Last-Subject-Sequence" in headers and await self._has_changed(key, found, headers):
                raise EntryChanged
        raise StorageUnavailable("NATS does not take the write")

    async def _has_changed(self, key: str, found: Entry, headers: dict[str, str]) -> bool:
        guarded = headers.get("Nats-Expected-Last-Subject-Sequence-Subject", _PREFIX + key).removeprefix(_PREFIX)
        state = found if guarded == key else await self.read_from_leader(guarded)
        return state.sequence != int(headers["Nats-Expected-Last-Subject-Sequence"])

    async def read_many(self, keys: list[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist, from any replica."""
        reader = await self._bus.reader(_STREAM)
        found = {}
        for start in range(0, len(keys), _KEYS_PER_READ):
            try:
                messages = await reader.latest(*(_PREFIX + key for key in keys[start : start + _KEYS_PER_READ]))
            except BusError as error:
                raise StorageUnavailable("NATS does not answer") from error
            found.update({_key_of(message.headers): message.data for message in messages if message.data})
        return found

    async def pages(self) -> AsyncIterator[list[Entry]]:
        """Yield all entries in pages, in the order of their last change. Delete markers are included, without data.

        It reads all keys, since the server needs a third of a second to filter a page at half a million entries.
        Entries that change during the iteration are left out: a caller that changes entries would otherwise never
        finish.
        """
        try:
            end = int((await self._bus.api(f"STREAM.INFO.{_STREAM}", {}))["state"]["last_seq"])
        except BusError as error:
            raise StorageUnavailable("NATS does not answer") from error
        after = 0
        while after < end and (found := await self._page(">", after, _PAGE_ENTRIES)):
            after = found[-1].sequence
            yield [entry for entry in found if entry.sequence <= end]

    async def _page(self, subject: str, after: int, limit: int) -> list[Entry]:
        reader = await self._bus.reader(_STREAM)
        try:
            found, _ = await reader.page(subject, after + 1, limit)
        except BusError as error:
            raise StorageUnavailable("NATS does not answer") from error
        return [Entry(_key_of(message.headers), sequence_of(message), message.data) for message in found]

    async def matching(self, pattern: str, after: int, limit: int) -> list[Entry]:
        """Return the next entries that match. Fast for up to 1,024 matches; beyond that it reads the whole bucket."""
        reader = await self._bus.reader(_STREAM)
        try:
            found = await reader.latest(_PREFIX + pattern)
        except Unavailable:  # Too many matches, or no answer.
            return await self._scan(limit, _PREFIX + pattern, after)
        entries = [
            Entry(_key_of(message.headers), sequence_of(message), message.data) for message in found if message.data
        ]
        return sorted((entry for entry in entries if entry.sequence > after), key=lambda entry: entry.sequence)[:limit]

    async def _scan(self, limit: int, subject: str, after: int) -> list[Entry]:
        """Return the next entries up to `limit`. Pages contain delete markers too, so a short page is not the last."""
        entries: list[Entry] = []
        while len(entries) < limit and (page := await self._page(subject, after, limit)):
            after = page[-1].sequence
            entries += [entry for entry in page if entry.data]
        return entries[:limit]


def _key_of(headers: dict[str, str] | None) -> str:
    return (headers or {}).get("Nats-Subject", "").removeprefix(_PREFIX)


def _ttl(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"Nats-TTL": f"{max(1, seconds)}s"}
