"""References: the metadata of artifacts, found by tenant and id, and listed by session and run.

A list entry only says that a reference may exist. It is written before the reference and deleted after it, so no
reference is missing from a list. A page of a list shows the references that exist.
"""

from contextlib import suppress

from pydantic import ValidationError

from contracts import keys
from contracts.artifacts import ArtifactPage, ArtifactRef, HeadArtifact, ListArtifacts, StoredArtifact
from contracts.base import Message
from services.artifact_store.blobs import Blobs, Claim, now
from services.artifact_store.kv import Entry, KeyValueStore
from services.shared.artifacts.errors import ArtifactNotFound

from .errors import EntryChanged


class Reference(Message):
    """The stored metadata of an artifact. `blob`: the name of its bytes."""

    v: int = 1
    ref: ArtifactRef
    session_id: str | None = None
    run_id: str | None = None
    blob: str

    def stored(self) -> StoredArtifact:
        """Return the part that callers see."""
        return StoredArtifact(ref=self.ref, session_id=self.session_id, run_id=self.run_id)


class References:
    """The references of all tenants. All methods raise StorageUnavailable when NATS does not answer."""

    def __init__(self, kv: KeyValueStore, blobs: Blobs) -> None:
        self._kv = kv
        self._blobs = blobs

    async def find(self, tenant: str, artifact: str) -> Reference | None:
        """Return a reference that has not expired, from any replica. A new one may be missing."""
        return _read((await self._kv.read(keys.reference_key(tenant, artifact))).data)

    async def resolve(self, asked: HeadArtifact) -> Reference:
        """Return a reference that the caller may see. Raises ArtifactNotFound, whatever the reason."""
        found = await self.find(asked.tenant, asked.artifact_id)
        if found is None:
            found = _read((await self._kv.read_from_leader(keys.reference_key(asked.tenant, asked.artifact_id))).data)
        if (
            found is None
            or (asked.session_id is not None and asked.session_id != found.session_id)
            or (asked.run_id is not None and asked.run_id != found.run_id)
        ):
            raise ArtifactNotFound
        return found

    async def add_listing(self, tenant: str, place: str, artifact: str, ttl_s: int | None) -> None:
        """Write the list entry of a reference that is about to be written. Its value is the time in Unix ms."""
        await self._kv.put(keys.place_key(tenant, place, artifact), str(now()).encode(), ttl_s=ttl_s)

    async def write(self, claim: Claim, reference: Reference, ttl_s: int | None) -> None:
        """Write a reference under its claim. Raises EntryChanged when the claim was lost."""
        key = keys.reference_key(claim.tenant, reference.ref.artifact_id)
        await self._blobs.write_under(
            claim, reference.ref.artifact_id, key, reference.model_dump_json().encode(), ttl_s
        )

    async def exists(self, tenant: str, artifact: str, blob: str) -> bool:
        """Whether a reference to this blob exists on the leader. One of an unknown version counts as existing."""
        data = (await self._kv.read_from_leader(keys.reference_key(tenant, artifact))).data
        found = _read(data)
        is_later = bool(data) and _parsed(data) is None
        return is_later or (found is not None and found.blob == blob)

    async def read_many(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], Reference]:
        """Return the references that exist, by tenant and id, from any replica."""
        by_key = {keys.reference_key(*who): who for who in wanted}
        found = await self._kv.read_many(list(by_key))
        return {
            by_key[key]: reference
            for key, data in found.items()
            if key in by_key and (reference := _read(data)) is not None
        }

    async def delete(self, tenant: str, artifact: str) -> None:
        """Delete a reference. Its list entry is deleted when the blob is collected."""
        await self._kv.delete(keys.reference_key(tenant, artifact))

    async def listing_revision(self, tenant: str, place: str, artifact: str) -> int:
        """Return the sequence of an artifact's list entry, for `remove_listing`."""
        return (await self._kv.read_from_leader(keys.place_key(tenant, place, artifact))).sequence

    async def remove_listing(self, tenant: str, place: str, artifact: str, *, revision: int) -> None:
        """Delete the list entry of a deleted artifact, unless it was written again."""
        with suppress(EntryChanged):
            await self._kv.delete(keys.place_key(tenant, place, artifact), after=revision)

    async def remove_stale_listings(self, entries: list[Entry], older_ms: int) -> None:
        """Delete list entries of that age without a reference.

        A put that came too late for the collector leaves them.
        """
        who = {keys.parse_place_key(entry.key): entry for entry in entries if int(entry.data) < now() - older_ms}
        found = await self.read_many(list(who))
        for (tenant, artifact), entry in who.items():
            if (tenant, artifact) not in found and not (
                await self._kv.read_from_leader(keys.reference_key(tenant, artifact))
            ).data:
                with suppress(EntryChanged):
                    await self._kv.delete(entry.key, after=entry.sequence)

    async def page(self, asked: ListArtifacts) -> ArtifactPage:
        """Return a page of the artifacts of a session or run."""
        pattern = keys.places_of(asked.tenant, asked.session_id, asked.run_id)
        entries = await self._kv.matching(pattern, asked.cursor, asked.limit + 1)
        shown, more = entries[: asked.limit], len(entries) > asked.limit
        who = [keys.parse_place_key(entry.key) for entry in shown]
        found = await self.read_many(who)
        references = [found[one] for one in who if one in found]
        return ArtifactPage(
            artifacts=[
                each.stored() for each in references if asked.namespace is None or each.ref.namespace == asked.namespace
            ],
            next_cursor=shown[-1].sequence if more else None,
        )


def _read(data: bytes) -> Reference | None:
    """Return a reference unless it has expired; the server deletes it a moment later."""
    reference = _parsed(data)
    if reference is None or (reference.ref.expires_at is not None and reference.ref.expires_at <= now()):
        return None
    return reference


def _parsed(data: bytes) -> Reference | None:
    """Parse a reference; None for an empty entry and for one of an unknown version."""
    try:
        return Reference.model_validate_json(data) if data else None
    except ValidationError:
        return None
