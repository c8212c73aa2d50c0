"""Artifact keys, the ids that tools give their artifacts: which artifact each one names, in its session and in its run.

An artifact key of a tool, its namespace, has an entry for each session and each run in which the tool gave it. The
entry names one artifact: of those that exist, the one whose reference was written last.

Rule 1: an entry is written after the reference and before the reply of the put, and only if it is unchanged since it
was read. So of two puts at once, whichever process handles them, the later reference wins.
Rule 2: references are ordered by their sequence in the bucket, not by a clock. A put that is late or repeated takes no
key from a newer artifact, and changes nothing.
Rule 3: a reader of an entry reads the reference too. Of a deleted or expired artifact the entry names nothing;
the garbage collector removes it, after a day at least: until then it still shows that older puts are late.
"""

import asyncio
from contextlib import suppress
from typing import Literal

from pydantic import Field

from contracts.artifacts.references import ArtifactPage, HeadArtifact, ListArtifacts
from contracts.wire import keys
from contracts.wire.base import Message
from contracts.wire.names import unix_ms
from services.artifact_store.references.entries import ArtifactEntry, Reference, References
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket as KeyValueBucket
from services.messaging.kv import Entry
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound

SHARED_KEY = "its tool has given this id to another artifact too; the id names the newest one"
"""The warning of a put that is not alone with its artifact key."""
KEPT_MS = 86_400_000
"""For how long the entry of an artifact that is gone stays at least."""


class KeyEntry(Message):
    """The artifact that a key names. `sequence`: of its reference. `at`: when this was written, Unix ms."""

    v: Literal[1] = 1
    artifact_id: str
    sequence: int
    superseded: str | None = Field(default=None, description="the artifact that the key named before, if it existed")
    at: int = Field(default_factory=unix_ms)


class ArtifactKeys:
    """The entries of all tenants. All methods raise BusError when NATS does not answer."""

    def __init__(self, kv: KeyValueBucket, references: References) -> None:
        self._kv = kv
        self._references = references

    async def assign(self, entry: ArtifactEntry) -> str | None:
        """Have the key of a stored artifact name it, unless it names a newer one. Return a warning, or None."""
        taken = [await self._assign(key, entry) for key in _keys_of(entry)]
        return SHARED_KEY if any(taken) else None

    async def _assign(self, key: str, entry: ArtifactEntry) -> bool:
        """Write one entry, if it is due. Return whether another artifact had the key, or has it."""
        while True:
            found = await self._kv.get_from_leader(key)
            now = found.parsed(KeyEntry)
            if now is not None and now.sequence >= entry.sequence:
                return now.artifact_id != entry.artifact or now.superseded is not None
            if found.data and now is None:
                return False  # A later version of the store wrote it.
            superseded = None  # The artifact from which the key is taken, if it still exists.
            if now is not None and now.artifact_id != entry.artifact:
                older = HeadArtifact(tenant=entry.tenant, artifact_id=now.artifact_id)
                superseded = now.artifact_id if await self._reference(older) is not None else None
            with suppress(Outdated):
                taken = KeyEntry(artifact_id=entry.artifact, sequence=entry.sequence, superseded=superseded)
                await self._kv.update(key, taken, revision=found.sequence)
                return superseded is not None

    async def _reference(self, request: HeadArtifact) -> Reference | None:
        with suppress(ArtifactNotFound):
            return await self._references.resolve(request)
        return None

    async def page(self, request: ListArtifacts) -> ArtifactPage:
        """Return what the key of the request names in its run, else in its session: one artifact for each tool.

        The newest is the first. Raises ArtifactInvalid without a session and run.
        """
        named = [name for entry in await self._named(request) if (name := entry.parsed(KeyEntry)) is not None]
        named.sort(key=lambda name: name.sequence, reverse=True)
        place = request.model_dump(include={"tenant", "session_id", "run_id"})
        wanted = [HeadArtifact(artifact_id=name.artifact_id, **place) for name in named]
        found = await asyncio.gather(*map(self._reference, wanted))
        shown = [each.stored() for each in found if each is not None and each.is_listed_for(request)]
        return ArtifactPage(artifacts=shown[: request.limit])

    async def _named(self, request: ListArtifacts) -> list[Entry]:
        if request.own_id is None or (request.session_id is None and request.run_id is None):
            raise ArtifactInvalid("own_id names an artifact in a session or run: give session_id or run_id")
        where = keys.listing(None if request.run_id else request.session_id, request.run_id)
        if request.namespace is not None:
            keys_found = [keys.own_id_key(request.tenant, where, request.own_id, request.namespace)]
        else:
            pattern = keys.own_ids_of(request.tenant, where, request.own_id)
            keys_found = [entry.key for entry in await self._kv.latest(pattern)]
        # Any replica may say which tools there are. What a key names now, the leader knows.
        return await asyncio.gather(*map(self._kv.get_from_leader, keys_found))

    async def remove_stale(self, page: list[Entry]) -> int:
        """Remove those entries of a page that have named nothing for a while, and return how many."""
        who = {
            entry: (keys.own_id.parsed(entry.key)[0], name.artifact_id)
            for entry in page
            if keys.own_id.begins(entry.key)
            and (name := entry.parsed(KeyEntry)) is not None
            and name.at < unix_ms() - KEPT_MS
        }
        existing = await self._references.read_many(list(set(who.values())))
        removed = 0
        for entry in [entry for entry, one in who.items() if one not in existing]:
            with suppress(Outdated):
                await self._kv.delete(entry.key, revision=entry.sequence)
                removed += 1
        return removed


def _keys_of(entry: ArtifactEntry) -> list[str]:
    """The entries of the artifact key: in its session, and in its run."""
    reference = entry.reference
    if reference.ref.own_id is None:
        return []
    places = [(reference.session_id, None), (None, reference.run_id)]
    wheres = [keys.listing(*place) for place in places if any(place)]
    namespace = reference.ref.namespace
    return [keys.own_id_key(entry.tenant, where, reference.ref.own_id, namespace) for where in wheres]
