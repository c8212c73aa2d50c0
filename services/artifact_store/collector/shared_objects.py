"""Objects that earlier versions stored: one for all artifacts of equal bytes, with a record of its users.

Their references are read as all others are, and new bytes are not stored in this way. An object is deleted once no
reference names it. This module can be deleted when no bucket holds such objects any more.
"""

from contextlib import suppress

from pydantic import ValidationError

from contracts.wire import keys
from contracts.wire.base import Message
from contracts.wire.ids import unix_ms
from services.artifact_store.errors import UnknownVersion
from services.artifact_store.references.entries import Reference, parsed
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket as KeyValueBucket
from services.messaging.kv import Entry


class _UserRecord(Message):
    """The record of an object's users. `at`: its last change in Unix ms."""

    at: int


class SharedObjects:
    """Which shared objects references name, and the records of their users. Create it with `found`."""

    def __init__(self, kv: KeyValueBucket, older_ms: int) -> None:
        self._kv = kv
        self._before = unix_ms() - older_ms
        self._used: set[tuple[str, str]] = set()
        self._records: dict[tuple[str, str], Entry] = {}
        self._is_certain = True

    @classmethod
    async def found(cls, kv: KeyValueBucket, older_ms: int) -> "SharedObjects":
        """Read all entries. `older_ms`: the age of a record from which its object may be deleted."""
        shared = cls(kv, older_ms)
        async for page in kv.pages():
            for entry in page:
                if keys.is_reference_key(entry.key):
                    shared._note_reference(entry)
                elif entry.data and keys.is_blob_key(entry.key):
                    shared._records[keys.parse_blob_key(entry.key)] = entry
        return shared

    def _note_reference(self, entry: Entry) -> None:
        try:
            content = parsed(entry.data)
        except UnknownVersion:
            self._is_certain = False  # An entry of an unknown version may name any object.
            return
        if isinstance(content, Reference) and keys.is_shared_object(content.object_name):
            self._used.add((keys.parse_reference_key(entry.key)[0], content.object_name))

    async def release(self, tenant: str, name: str) -> bool:
        """Delete the record of an object that no reference names. Return whether the object may be deleted too."""
        record = self._records.get((tenant, name))
        if not self._is_certain or (tenant, name) in self._used:
            return False
        if record is None:
            return True
        # An instance of an earlier version may still write a reference: within a day, and only while this record
        # exists.
        with suppress(Outdated, ValidationError):
            if _UserRecord.model_validate_json(record.data).at < self._before:
                await self._kv.delete(record.key, revision=record.sequence)
                return True
        return False
