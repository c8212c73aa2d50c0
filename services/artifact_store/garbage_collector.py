"""The collector: finds bytes that no reference needs and removes them. Any number of copies at once do no harm.

Rule 1: never bytes that a reference holds. How that is kept is told in `blobs`.
Rule 2: what is younger than the grace is left alone, since its put may still be under way; only an explicit deletion does not wait.
Rule 3: an artifact without a time of its own is kept as long as its run, which may still wait to be begun: it goes when the run's log has
been purged.
Rule 4: objects without any record are only removed from a bucket that is known to be ours.
Rule 5: what a later version has written, as after a downgrade, is left alone.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

import structlog

from contracts import subjects
from contracts.subjects import InvalidName
from services.artifact_store.blobs import BlobRecord, Blobs, BlobUser, blob_record, now
from services.artifact_store.bucket import Bucket
from services.artifact_store.bucket_owner import is_ours
from services.artifact_store.errors import EntryChanged, UnknownVersion
from services.artifact_store.kv import Entry, KeyValueStore
from services.artifact_store.references import Reference, References
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.shared.artifacts.errors import ArtifactFailed

logger = structlog.get_logger(__name__)

_PAGE_OBJECTS = 1000
_PAUSE_S = 0.05
_DAY_MS = 86_400_000
_RUNS_PER_READ = 500


class GarbageCollector:
    """Looks at all records from time to time, and at single ones when told."""

    def __init__(self, bus: Bus, kv: KeyValueStore, bucket: Bucket, blobs: Blobs, references: References, grace_s: float) -> None:
        self._bus = bus
        self._kv = kv
        self._bucket = bucket
        self._blobs = blobs
        self._references = references
        self._grace_ms = int(grace_s * 1000)
        self._hints: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    def hint(self, tenant: str, name: str, artifact: str) -> None:
        """Look at a blob soon: this artifact's reference has been removed."""
        self._hints.put_nowait((tenant, name, artifact))

    async def follow_hints(self) -> None:
        """Look where told, for ever. What goes wrong here is found by the next sweep."""
        while True:
            tenant, name, artifact = await self._hints.get()
            with contextlib.suppress(ArtifactFailed, BusError, EntryChanged):
                record, sequence = await self._blobs.read(tenant, name)
                if record is not None and artifact in record.users:
                    await self.release(tenant, name, record, sequence, [artifact])

    async def sweep_forever(self, every_s: float) -> None:
        """Sweep now and then; copies of the store spread out."""
        orphans_at = now() + _DAY_MS
        while True:
            await asyncio.sleep(every_s * random.uniform(0.7, 1.3))  # noqa: S311, a spread, not a secret
            try:
                removed = await self.sweep()
                if now() >= orphans_at:
                    orphans_at = now() + _DAY_MS
                    removed += await self.sweep_orphans(_DAY_MS)
                    await self.sweep_lists(_DAY_MS)
            except (ArtifactFailed, BusError) as error:
                logger.warning("sweep_failed", error=str(error))
            else:
                logger.info("sweep_ended", removed=removed)

    async def sweep(self) -> int:
        """Look at every record once and return how many blobs were removed."""
        removed = 0
        async for entries in self._kv.pages():
            records = [entry for entry in entries if entry.data and subjects.is_blob_key(entry.key)]
            for tenant, name, record, sequence, gone in await self._candidates(records):
                with contextlib.suppress(EntryChanged):
                    removed += await self.release(tenant, name, record, sequence, gone)
            await asyncio.sleep(_PAUSE_S)
        return removed

    async def _candidates(self, entries: list[Entry]) -> list[tuple[str, str, BlobRecord, int, list[str]]]:
        """Return the records that seem to have users without a reference, with those users' ids."""
        parsed = [(entry, record) for entry in entries if (record := blob_record(entry.data)) is not None]
        found_records = [(*subjects.parse_blob_key(entry.key), record, entry.sequence) for entry, record in parsed]
        due = [
            (tenant, artifact) for tenant, _, record, _ in found_records for artifact, user in record.users.items() if self._is_old(user)
        ]
        found = await self._references.read_many(due)
        purged = await self._purged(found)
        candidates = []
        for tenant, name, record, sequence in found_records:
            gone = [
                artifact
                for artifact, user in record.users.items()
                if self._is_old(user)
                and ((tenant, artifact) in purged or (reference := found.get((tenant, artifact))) is None or reference.blob != name)
            ]
            if gone or (not record.users and record.at < now() - self._grace_ms):
                candidates.append((tenant, name, record, sequence, gone))
        return candidates

    def _is_old(self, user: BlobUser) -> bool:
        return user.void or user.at < now() - self._grace_ms

    async def _purged(self, found: dict[tuple[str, str], Reference]) -> set[tuple[str, str]]:
        """Remove the references whose run has been purged, and return them."""
        old = {who: each for who, each in found.items() if _follows_run(each)}
        runs = sorted({(tenant, each.run_id) for (tenant, _), each in old.items() if each.run_id})
        # Requests first: a run that is taken up meanwhile has its log by then.
        there = await self._existing(subjects.REQUESTS, runs, subjects.request) | await self._existing(subjects.RUNS, runs, subjects.log)
        purged = {who for who, each in old.items() if each.run_id and (who[0], each.run_id) not in there}
        for tenant, artifact in purged:
            await self._references.delete(tenant, artifact)
        return purged

    async def _existing(self, stream: str, runs: list[tuple[str, str]], subject: Callable[[str, str], str]) -> set[tuple[str, str]]:
        """Return those of the runs of which the stream holds something."""
        subjects_of, found = {subject(*run): run for run in runs}, set()
        reader = await self._bus.reader(stream)
        for start in range(0, len(runs), _RUNS_PER_READ):
            messages = await reader.latest(*list(subjects_of)[start : start + _RUNS_PER_READ])
            found |= {(message.headers or {}).get("Nats-Subject", "") for message in messages}
        return {run for name, run in subjects_of.items() if name in found}

    async def release(self, tenant: str, name: str, record: BlobRecord, sequence: int, gone: list[str]) -> int:
        """Drop those of the users that have no reference, and the bytes with the last of them. Returns how many blobs were removed.

        Raises EntryChanged when somebody else has changed the record; nothing is lost then.
        """
        if record.to_delete:
            return await self._finish_deletion(tenant, name, record, sequence)
        revisions = {artifact: await self._references.listing_revision(tenant, record.users[artifact].place, artifact) for artifact in gone}
        voided = {
            artifact: user.model_copy(update={"void": True}) if artifact in revisions else user for artifact, user in record.users.items()
        }
        sequence = await self._blobs.write(tenant, name, record.model_copy(update={"users": voided, "at": now()}), after=sequence)
        # From here on no reference can be written under what was claimed before: what is not there now will not come.
        alive = {artifact for artifact in gone if await self._references.exists(tenant, artifact, name)}
        for artifact in revisions.keys() - alive:
            await self._references.remove_listing(tenant, record.users[artifact].place, artifact, revision=revisions[artifact])
        left = {artifact: user for artifact, user in record.users.items() if artifact not in revisions or artifact in alive}
        rest = BlobRecord(size=record.size, users=left, to_delete=not left, at=now())
        sequence = await self._blobs.write(tenant, name, rest, after=sequence)
        return await self._remove(tenant, name, sequence) if rest.to_delete else 0

    async def _remove(self, tenant: str, name: str, sequence: int) -> int:
        """Remove the bytes of a name that this very call has marked, then its record.

        When the removal does not end well it may still happen later, so the record stays: nobody may use the name again.
        """
        await self._bucket.remove(subjects.object_key(tenant, name))
        await self._blobs.delete(tenant, name, after=sequence)
        logger.info("blob_removed", tenant=tenant, blob=name)
        return 1

    async def _finish_deletion(self, tenant: str, name: str, record: BlobRecord, sequence: int) -> int:
        """Finish what somebody else has begun, after a day: no request of theirs is under way any more."""
        return await self._remove(tenant, name, sequence) if record.at < now() - _DAY_MS else 0

    async def sweep_orphans(self, older_ms: int) -> int:
        """Remove objects that no record knows: what a put brought whose record had gone meanwhile. Returns how many."""
        if not await is_ours(self._kv, self._bucket):
            logger.warning("bucket_not_ours", advice="objects without a record are left alone: the bucket was filled under another NATS")
            return 0
        removed, after = 0, None
        while objects := await self._bucket.listed(after, _PAGE_OBJECTS):
            after = objects[-1].key
            for each in objects:
                with contextlib.suppress(InvalidName, EntryChanged, UnknownVersion):
                    tenant, name = subjects.parse_object_key(each.key)
                    if each.modified_at < now() - older_ms:
                        removed += await self._remove_orphan(tenant, name)
        return removed

    async def sweep_lists(self, older_ms: int) -> None:
        """Take entries without a reference off the lists, where no blob leads to them any more."""
        async for entries in self._kv.pages():
            await self._references.remove_stale_listings(
                [entry for entry in entries if entry.data and subjects.is_place_key(entry.key)], older_ms
            )
            await asyncio.sleep(_PAUSE_S)

    async def _remove_orphan(self, tenant: str, name: str) -> int:
        record, sequence = await self._blobs.read(tenant, name)
        if record is not None:
            return 0
        to_delete = await self._blobs.write(tenant, name, BlobRecord(size=0, to_delete=True, at=now()), after=sequence)
        return await self._remove(tenant, name, to_delete)


def _follows_run(reference: Reference) -> bool:
    created_at = reference.ref.created_at or 0
    return reference.run_id is not None and reference.ref.expires_at is None and created_at < now() - _DAY_MS
