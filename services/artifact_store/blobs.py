"""Who holds a blob: the record that keeps bytes from being collected under a reference that is about to be written.

A blob is one object of the bucket. Its record names its holders, the artifacts that use it. The order of all work on it:

    put:     claim (my id among the holders) -> bytes -> reference, written only while the record is as I left it
    collect: void those whose reference is missing -> look for their references again -> drop them;
             none left: condemn -> remove the bytes -> remove the record

Rule 1: a reference is written under the guard of the record's sequence, so voiding a holder makes its late reference impossible: what is
looked for after that cannot appear any more. No clock decides; times only say when looking is worth the while.
Rule 2: a condemned name is never used again until whoever condemned it has seen its bytes go, so a late removal hits nobody. Whoever
comes meanwhile keeps the same bytes under the next name (`<sha256>-1`, `-2`, and so on).
Rule 3: everything that a dead process leaves behind hangs on a record, and the collector finds it there.
"""

import time
from dataclasses import dataclass, replace
from itertools import count

from pydantic import Field, ValidationError

from contracts import subjects
from contracts.base import Message
from services.artifact_store.errors import Moved, NotUnderstood
from services.artifact_store.kv import Table

MAX_HOLDERS = 200
"""More go to the next name: a record is read and written whole."""


class Holder(Message):
    """An artifact that uses a blob. `place` is its entry in the lists; `void`: its reference was missing."""

    at: int
    place: str
    void: bool = False


class Shelf(Message):
    """The record of a blob. `condemned`: its bytes are being removed."""

    size: int
    holders: dict[str, Holder] = Field(default_factory=dict)
    condemned: bool = False
    at: int = Field(description="of the last change, Unix ms")


@dataclass(frozen=True, slots=True)
class Claim:
    """A right to write one reference to a blob. `fresh`: nobody held this name before, so its bytes are not there yet."""

    tenant: str
    name: str
    sequence: int
    fresh: bool

    @property
    def key(self) -> str:
        """The record's key."""
        return subjects.blob_key(self.tenant, self.name)

    @property
    def object_key(self) -> str:
        """Where the bytes lie."""
        return subjects.object_key(self.tenant, self.name)


class Shelves:
    """The records of all blobs."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def claim(self, tenant: str, sha256: str, size: int, artifact: str, place: str) -> Claim:
        """Enter the artifact among the holders of these bytes, and return the name under which they lie or shall lie."""
        for number in count():
            name = f"{sha256}-{number}" if number else sha256
            claim = await self._enter(tenant, name, size, artifact, place)
            if claim is not None:
                return claim
        raise AssertionError

    async def _enter(self, tenant: str, name: str, size: int, artifact: str, place: str) -> Claim | None:
        found: tuple[Shelf | None, int] = (None, 0)  # Most bytes are new, so nothing is read before the first try.
        while True:
            shelf, sequence = found
            if shelf is not None and (shelf.condemned or (artifact not in shelf.holders and len(shelf.holders) >= MAX_HOLDERS)):
                return None
            holder = shelf.holders.get(artifact) if shelf is not None else None
            if holder is not None and not holder.void:
                return Claim(tenant, name, sequence, fresh=False)
            holders = {**(shelf.holders if shelf is not None else {}), artifact: Holder(at=now(), place=place)}
            try:
                written = await self.write(tenant, name, Shelf(size=size, holders=holders, at=now()), after=sequence)
            except Moved:
                found = await self.read(tenant, name)
            else:
                return Claim(tenant, name, written, fresh=shelf is None)

    async def write_under(self, claim: Claim, artifact: str, key: str, data: bytes, ttl_s: int | None) -> int:
        """Write an entry while the artifact is among the holders. Raises Moved when it is not, any more."""
        while True:
            try:
                return await self._table.write_while(key, data, other=claim.key, at=claim.sequence, ttl_s=ttl_s)
            except Moved:  # Others have come or gone; what counts is whether I am still in.
                shelf, sequence = await self.read(claim.tenant, claim.name)
                if shelf is None or shelf.condemned or artifact not in shelf.holders or shelf.holders[artifact].void:
                    raise
                claim = replace(claim, sequence=sequence)

    async def read(self, tenant: str, name: str) -> tuple[Shelf | None, int]:
        """Return a record, as the leader knows it, and its sequence; for None that of its removal, or 0. Raises NotUnderstood."""
        entry = await self._table.surely(subjects.blob_key(tenant, name))
        shelf = shelf_of(entry.data)
        if entry.data and shelf is None:
            raise NotUnderstood
        return shelf, entry.sequence

    async def write(self, tenant: str, name: str, shelf: Shelf, *, after: int) -> int:
        """Write a record on condition and return its sequence. Raises Moved."""
        return await self._table.write(subjects.blob_key(tenant, name), shelf.model_dump_json().encode(), after=after)

    async def drop(self, tenant: str, name: str, *, after: int) -> None:
        """Remove a record on condition. Raises Moved."""
        await self._table.drop(subjects.blob_key(tenant, name), after=after)


def shelf_of(data: bytes) -> Shelf | None:
    """Read a record; None for none, and for one that is not understood."""
    try:
        return Shelf.model_validate_json(data) if data else None
    except ValidationError:
        return None


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000
