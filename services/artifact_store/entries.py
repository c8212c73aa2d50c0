"""What the store knows about artifacts: an entry per id, lists for sessions and runs, and what artifact keys name.

The entry of an artifact has one of three contents. Each change replaces the content that it was decided from, by its
sequence, or fails:

    put:    write `pending`, which names a new object -> write the bytes -> replace it by the Reference
    delete: replace whatever is there by `deleting` -> delete the bytes -> delete the entry

Rule 1: a put whose entry was replaced cannot write its reference. So a reference always has its bytes, however long a
process was stopped in between. Correctness never depends on time; times only schedule checks.
Rule 2: the name of an object is never used twice, so a late write or deletion hits no other put.
Rule 3: everything that a crashed process leaves behind is named by an entry, where the garbage collector finds it.
Rule 4: the list entry is written before the reference and deleted before the entry, each time only if the entry is
unchanged. So no reference is missing from a list. A page shows those list entries whose reference exists.

An artifact key is an id that a tool, its namespace, gives an artifact. It has an entry for each session and each run in
which the tool gave it, which names one artifact: of those that exist, the one whose reference was written last.

Rule 5: an entry is written after the reference and before the reply of the put, and only if it is unchanged since it
was read. So of two puts at once, whichever process handles them, the later reference wins.
Rule 6: references are ordered by their sequence in the bucket, not by a clock. A put that is late or repeated takes no
key from a newer artifact, and changes nothing.
Rule 7: a reader of an entry reads the reference too. Of a deleted or expired artifact the entry names nothing;
the garbage collector removes it, after a day at least: until then it still shows that older puts are late.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from contracts.artifacts import ArtifactPage, ArtifactRef, HeadArtifact, ListArtifacts, PutArtifact, StoredArtifact
from contracts.wire import keys
from contracts.wire.base import Message
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket as KeyValueBucket
from services.messaging.kv import Entry
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, StorageUnavailable

_ATTEMPTS = 3
_DELETED_TTL_S = 3600


class UnknownVersion(StorageUnavailable):
    """The entry was written by a later version of the store."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("a later version of the store has written the entry of this artifact")


class Reference(Message):
    """A stored artifact. `object_name`: of its bytes."""

    v: Literal[1] = 1
    ref: ArtifactRef
    session_id: str | None = None
    run_id: str | None = None
    user_id: str | None = None
    object_name: str = Field(alias="blob")

    def is_of(self, put: PutArtifact) -> bool:
        """Whether an attempt of this put wrote it."""
        wanted = (put.sha256, put.size, put.session_id, put.run_id)
        return (self.ref.sha256, self.ref.size, self.session_id, self.run_id) == wanted

    def is_listed_for(self, request: ListArtifacts) -> bool:
        """Whether a list that is narrowed to a namespace or a skill contains it."""
        wanted = ((request.namespace, self.ref.namespace), (request.skill_id, self.ref.skill_id))
        return all(asked is None or asked == own for asked, own in wanted)

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.ref.expires_at is not None and self.ref.expires_at <= unix_ms()

    def stored(self) -> StoredArtifact:
        """Return the part that callers see."""
        return StoredArtifact(ref=self.ref, session_id=self.session_id, run_id=self.run_id, user_id=self.user_id)


class Unfinished(Message):
    """An artifact that is being written or deleted. `at`: since when, in Unix ms."""

    v: Literal[1] = 1
    state: Literal["pending", "deleting"]
    reference: Reference
    at: int = Field(default_factory=unix_ms)


_CONTENT: TypeAdapter[Reference | Unfinished] = TypeAdapter(Reference | Unfinished)


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """The entry of an artifact, and its sequence, which guards what replaces it."""

    tenant: str
    artifact: str
    content: Reference | Unfinished
    sequence: int

    @property
    def reference(self) -> Reference:
        """Its reference: as it is, as it will be, or as it was."""
        return self.content if isinstance(self.content, Reference) else self.content.reference

    @property
    def object_key(self) -> str:
        """The key of its bytes in the bucket."""
        return keys.object_key(self.tenant, self.reference.object_name)

    @property
    def key(self) -> str:
        """Its own key."""
        return keys.reference(self.tenant, self.artifact)

    @property
    def listing_key(self) -> str:
        """The key of its list entry."""
        listing = keys.listing(self.reference.session_id, self.reference.run_id)
        return keys.listing_key(self.tenant, listing, self.artifact)


def entries_bucket(bus: Bus) -> KeyValueBucket:
    """Return the KV bucket that holds the entries."""
    return KeyValueBucket(bus, keys.ARTIFACTS_BUCKET, attempts=_ATTEMPTS)


class References:
    """The entries of all tenants. All methods raise BusError when NATS does not answer."""

    def __init__(self, kv: KeyValueBucket) -> None:
        self._kv = kv

    async def resolve(self, request: HeadArtifact) -> Reference:
        """Return a reference that the caller may see. Raises ArtifactNotFound, whatever the reason."""
        key = keys.reference(request.tenant, request.artifact_id)
        # Any replica may answer first. What is missing there may be new.
        found = _visible((await self._kv.get(key)).data) or _visible((await self._kv.get_from_leader(key)).data)
        if (
            found is None
            or (request.session_id is not None and request.session_id != found.session_id)
            or (request.run_id is not None and request.run_id != found.run_id)
        ):
            raise ArtifactNotFound
        return found

    async def read(self, tenant: str, artifact: str) -> tuple[ArtifactEntry | None, int]:
        """Return an entry and its sequence, or that of its deletion, or 0, from the leader. Raises UnknownVersion."""
        found = await self._kv.get_from_leader(keys.reference(tenant, artifact))
        content = parsed(found.data)
        entry = ArtifactEntry(tenant, artifact, content, found.sequence) if content is not None else None
        return entry, found.sequence

    async def is_unnamed(self, tenant: str, object_name: str) -> bool:
        """Whether no entry names an object, neither now nor later. One of an unknown version may name it."""
        with suppress(UnknownVersion):
            entry, _ = await self.read(tenant, keys.artifact_of_object(object_name))
            return entry is None or entry.reference.object_name != object_name
        return False

    async def write(self, tenant: str, artifact: str, content: Reference | Unfinished, *, after: int) -> ArtifactEntry:
        """Write an entry if `after` is its sequence, or that of its deletion. Raises Outdated."""
        data = content.model_dump_json(by_alias=True).encode()
        sequence = await self._kv.update(keys.reference(tenant, artifact), data, revision=after)
        return ArtifactEntry(tenant, artifact, content, sequence)

    async def replace(self, entry: ArtifactEntry, content: Reference | Unfinished) -> ArtifactEntry:
        """Write new content if the entry is unchanged. Raises Outdated."""
        return await self.write(entry.tenant, entry.artifact, content, after=entry.sequence)

    async def add_listing(self, entry: ArtifactEntry) -> None:
        """Write the list entry of a pending artifact. Its value is the time in Unix ms. Raises Outdated."""
        data = str(unix_ms()).encode()
        await self._kv.update(entry.listing_key, data, of=entry.key, revision=entry.sequence)

    async def remove(self, entry: ArtifactEntry) -> None:
        """Delete the list entry and the entry. Raises Outdated."""
        await self._kv.update(entry.listing_key, b"", of=entry.key, revision=entry.sequence, ttl_s=_DELETED_TTL_S)
        await self._kv.delete(entry.key, revision=entry.sequence)

    async def read_many(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], Reference]:
        """Return the references that exist, by tenant and id, from any replica."""
        by_key = {keys.reference(*who): who for who in wanted}
        found = await self._kv.get_many(list(by_key))
        return {
            by_key[key]: reference
            for key, entry in found.items()
            if key in by_key and (reference := _visible(entry.data)) is not None
        }

    async def page(self, request: ListArtifacts) -> ArtifactPage:
        """Return a page of the artifacts of a session or run."""
        pattern = keys.listings_of(request.tenant, request.session_id, request.run_id)
        entries = await self._kv.matching(pattern, request.cursor, request.limit + 1)
        shown, more = entries[: request.limit], len(entries) > request.limit
        who = [keys.parse_listing_key(entry.key) for entry in shown]
        found = await self.read_many(who)
        references = [found[one] for one in who if one in found]
        return ArtifactPage(
            artifacts=[each.stored() for each in references if each.is_listed_for(request)],
            next_cursor=shown[-1].sequence if more else None,
        )


def _visible(data: bytes) -> Reference | None:
    """Return what readers may see: a reference that has not expired."""
    with suppress(UnknownVersion):
        content = parsed(data)
        if isinstance(content, Reference) and not content.is_expired:
            return content
    return None


def parsed(data: bytes) -> Reference | Unfinished | None:
    """Parse the content of an entry. Raises UnknownVersion."""
    try:
        return _CONTENT.validate_json(data) if data else None
    except ValidationError:
        raise UnknownVersion from None


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
