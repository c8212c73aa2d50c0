"""The parts of a store, to do by hand what a process does in one go."""

from collections.abc import Callable

from contracts.artifacts import PutArtifact
from contracts.wire import keys
from services.artifact_store.bucket import Bucket
from services.artifact_store.entries import ArtifactEntry, ArtifactKeys, References, entries_bucket
from services.artifact_store.settings import ArtifactStoreSettings
from services.artifact_store.store import ArtifactStore
from services.artifact_store.sweeps import Deletions, GarbageCollector, remove_orphans
from services.messaging.connection import Bus

HOUR_MS = 3_600_000


class Inside:
    """A store without its background tasks. With a grace of nothing its collector deletes whatever it may."""

    def __init__(
        self,
        bus: Bus,
        settings: ArtifactStoreSettings,
        grace_s: float = 0.0,
        bucket: Callable[[ArtifactStoreSettings], Bucket] = Bucket,
    ) -> None:
        self.kv = entries_bucket(bus)
        self.bucket = bucket(settings)
        self.references = References(self.kv)
        self.artifact_keys = ArtifactKeys(self.kv, self.references)
        self.deletions = Deletions(self.references, self.bucket)
        self.collector = GarbageCollector(
            bus, self.kv, self.bucket, self.references, self.artifact_keys, self.deletions, grace_s
        )
        self.store = ArtifactStore(self.bucket, self.references, self.artifact_keys, self.deletions, settings)

    async def begin(self, put: PutArtifact, body: bytes) -> ArtifactEntry:
        """Do what a put does before its reference: the entry, the list entry, the bytes."""
        entry = await self.store.begin(put)
        assert isinstance(entry, ArtifactEntry)
        await self.references.add_listing(entry)
        await self.bucket.write(entry.object_key, body)
        return entry

    async def is_known(self, put: PutArtifact) -> bool:
        """Whether there is an entry of an artifact, or a list entry."""
        entry, _ = await self.references.read(put.tenant, put.artifact_id)
        key = keys.listing_key(put.tenant, keys.listing(put.session_id, put.run_id), put.artifact_id)
        return entry is not None or bool((await self.kv.get_from_leader(key)).data)

    async def sweep_bucket(self, older_ms: int) -> int:
        return await remove_orphans(self.kv, self.bucket, self.references, older_ms)
