"""Which artifacts use a blob. The record of a blob protects its bytes while a reference to them is being written.

A blob is one object of the bucket. Its record lists its users, the artifacts that refer to it. All work follows one
order:

    put:     claim (add the artifact to the users) -> write the bytes -> write the reference, if the record is unchanged
    collect: void the users without a reference -> read their references again -> remove those users;
             no user left: mark the blob to be deleted -> delete the bytes -> delete the record

Rule 1: a reference is written under the guard of the record's sequence. Voiding a user changes the sequence, so a late
reference of that user is refused, and what the collector reads afterwards is final. Correctness never depends on time;
times only schedule checks.
Rule 2: a name that is marked to be deleted is not used again before its bytes are deleted. A put of the same bytes in
the meantime uses the next name (`<sha256>-1`, `-2`, and so on), so a late deletion cannot hit it.
Rule 3: everything that a crashed process leaves behind is listed in a record, where the collector finds it.
"""

import time
from dataclasses import dataclass, replace
from itertools import count

from pydantic import Field, ValidationError

from contracts import keys
from contracts.base import Message
from services.artifact_store.errors import EntryChanged, UnknownVersion
from services.artifact_store.kv import KeyValueStore

MAX_BLOB_USERS = 200
"""More users go to the next name, since a record is read and written as a whole."""


class BlobUser(Message):
    """An artifact that uses a blob. `place`: its entry in the lists; `void`: its reference was missing."""

    at: int
    place: str
    void: bool = False


class BlobRecord(Message):
    """The record of a blob. `to_delete`: its bytes are being deleted."""

    size: int
    users: dict[str, BlobUser] = Field(default_factory=dict, alias="holders")
    to_delete: bool = Field(default=False, alias="condemned")
    at: int = Field(description="of the last change, Unix ms")


@dataclass(frozen=True, slots=True)
class Claim:
    """A right to write one reference to a blob.

    `fresh`: the name had no user before, so its bytes are not there yet.
    """

    tenant: str
    name: str
    sequence: int
    fresh: bool

    @property
    def key(self) -> str:
        """The record's key."""
        return keys.blob_key(self.tenant, self.name)

    @property
    def object_key(self) -> str:
        """The key of the bytes in the bucket."""
        return keys.object_key(self.tenant, self.name)


class Blobs:
    """The records of all blobs."""

    def __init__(self, kv: KeyValueStore) -> None:
        self._kv = kv

    async def claim(self, tenant: str, sha256: str, size: int, artifact: str, place: str) -> Claim:
        """Add the artifact to the users of these bytes, and return the claim, which names the object."""
        for number in count():
            name = f"{sha256}-{number}" if number else sha256
            claim = await self._try_claim(tenant, name, size, artifact, place)
            if claim is not None:
                return claim
        raise AssertionError

    async def _try_claim(self, tenant: str, name: str, size: int, artifact: str, place: str) -> Claim | None:
        found: tuple[BlobRecord | None, int] = (None, 0)  # Most bytes are new, so nothing is read before the first try.
        while True:
            record, sequence = found
            if record is not None and (
                record.to_delete or (artifact not in record.users and len(record.users) >= MAX_BLOB_USERS)
            ):
                return None
            user = record.users.get(artifact) if record is not None else None
            if user is not None and not user.void:
                return Claim(tenant, name, sequence, fresh=False)
            users = {**(record.users if record is not None else {}), artifact: BlobUser(at=now(), place=place)}
            try:
                written = await self.write(tenant, name, BlobRecord(size=size, users=users, at=now()), after=sequence)
            except EntryChanged:
                found = await self.read(tenant, name)
            else:
                return Claim(tenant, name, written, fresh=record is None)

    async def write_under(self, claim: Claim, artifact: str, key: str, data: bytes, ttl_s: int | None) -> int:
        """Write an entry while the artifact is listed as a user. Raises EntryChanged when it no longer is."""
        while True:
            try:
                return await self._kv.write_if_unchanged(key, data, other=claim.key, at=claim.sequence, ttl_s=ttl_s)
            except EntryChanged:  # Other users changed; this one may still be listed.
                record, sequence = await self.read(claim.tenant, claim.name)
                if record is None or record.to_delete or artifact not in record.users or record.users[artifact].void:
                    raise
                claim = replace(claim, sequence=sequence)

    async def read(self, tenant: str, name: str) -> tuple[BlobRecord | None, int]:
        """Return a record and its sequence from the leader.

        Without a record: the sequence of its removal, or 0. Raises UnknownVersion.
        """
        entry = await self._kv.read_from_leader(keys.blob_key(tenant, name))
        record = blob_record(entry.data)
        if entry.data and record is None:
            raise UnknownVersion
        return record, entry.sequence

    async def write(self, tenant: str, name: str, record: BlobRecord, *, after: int) -> int:
        """Write a record if `after` is its sequence, and return the new one. Raises EntryChanged."""
        return await self._kv.write(
            keys.blob_key(tenant, name), record.model_dump_json(by_alias=True).encode(), after=after
        )

    async def delete(self, tenant: str, name: str, *, after: int) -> None:
        """Delete a record if `after` is its sequence. Raises EntryChanged."""
        await self._kv.delete(keys.blob_key(tenant, name), after=after)


def blob_record(data: bytes) -> BlobRecord | None:
    """Parse a record; None for an empty one and for one of an unknown version."""
    try:
        return BlobRecord.model_validate_json(data) if data else None
    except ValidationError:
        return None


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000
