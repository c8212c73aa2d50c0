"""The KV bucket of the store, with the errors of the store. One entry per key.

Rule 1: a conditional write names the sequence of the entry that it depends on. If the entry has changed, nothing is
written.
Rule 2: any replica answers a read, so it may be stale. Where stale data would lose something, `read_from_leader` asks
the leader.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from contracts import keys
from services.artifact_store.errors import EntryChanged
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated, Refused
from services.messaging.kv import Bucket, Entry
from services.shared.artifacts.errors import StorageUnavailable

__all__ = ["Entry", "KeyValueStore"]

_ATTEMPTS = 3


class KeyValueStore:
    """The entries of the bucket. All methods raise StorageUnavailable when NATS does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, keys.ARTIFACTS_BUCKET, attempts=_ATTEMPTS)

    async def read(self, key: str) -> Entry:
        """Return an entry from any replica."""
        with _errors():
            return await self._bucket.get(key)

    async def read_from_leader(self, key: str) -> Entry:
        """Return an entry from the leader."""
        with _errors():
            return await self._bucket.get_from_leader(key)

    async def put(self, key: str, data: bytes, *, ttl_s: int | None = None) -> int:
        """Write an entry unconditionally, and return its sequence."""
        with _errors():
            return await self._bucket.put(key, data, ttl_s=ttl_s)

    async def write(self, key: str, data: bytes, *, after: int) -> int:
        """Write an entry if its sequence is `after` (0: it does not exist), and return the new sequence.

        Raises EntryChanged.
        """
        with _errors():
            return await self._bucket.update(key, data, revision=after)

    async def write_if_unchanged(self, key: str, data: bytes, *, other: str, at: int, ttl_s: int | None = None) -> int:
        """Write an entry if the sequence of *another* key is still `at`. Raises EntryChanged."""
        with _errors():
            return await self._bucket.update(key, data, revision=at, of=other, ttl_s=ttl_s)

    async def delete(self, key: str, *, after: int | None = None) -> None:
        """Delete an entry, unconditionally or if its sequence is `after`. Raises EntryChanged."""
        with _errors():
            await self._bucket.delete(key, revision=after)

    async def read_many(self, wanted: list[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist, from any replica."""
        with _errors():
            return {key: entry.data for key, entry in (await self._bucket.get_many(wanted)).items()}

    async def pages(self) -> AsyncIterator[list[Entry]]:
        """Yield all entries in pages, in the order of their last change. Delete markers are included, without data."""
        with _errors():
            async for page in self._bucket.pages():
                yield page

    async def matching(self, pattern: str, after: int, limit: int) -> list[Entry]:
        """Return the next entries that match. Fast for up to 1,024 matches; beyond that it reads the whole bucket."""
        with _errors():
            return await self._bucket.matching(pattern, after, limit)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except Outdated:
        raise EntryChanged from None
    except Refused as error:
        raise StorageUnavailable("JetStream refused a request") from error
    except BusError as error:
        raise StorageUnavailable("NATS does not answer") from error
