"""The garbage collector: deletes bytes that no reference needs. Several instances may run at once.

Rule 1: it never deletes bytes that a reference uses. `blobs` explains how.
Rule 2: it skips entries younger than the grace period, since their put may still be in progress. An explicit deletion
does not wait.
Rule 3: an artifact without an expiry of its own lives as long as its run. It is deleted once the run's log is purged
and its request is gone; a run may still wait for its start.
Rule 4: objects without any record are deleted only from a bucket that is known to be ours.
Rule 5: entries of an unknown version, as after a downgrade, are skipped.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

import structlog

from contracts import keys, subjects
from contracts.names import InvalidName
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
    """Checks all records from time to time, and single records on request."""

    def __init__(
        self, bus: Bus, kv: KeyValueStore, bucket: Bucket, blobs: Blobs, references: References, grace_s: float
    ) -> None:
        self._bus = bus
        self._kv = kv
        self._bucket = bucket
        self._blobs = blobs
        self._references = references
        self._grace_ms = int(grace_s * 1000)
        self._hints: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    def hint(self, tenant: str, name: str, artifact: str) -> None:
        """Check a blob soon: the reference of this artifact was deleted."""
        self._hints.put_nowait((tenant, name, artifact))

    async def follow_hints(self) -> None:
        """Check the blobs of hints, without end. The next sweep repeats what fails here."""
        while True:
            tenant, name, artifact = await self._hints.get()
            with contextlib.suppress(ArtifactFailed, BusError, EntryChanged):
                record, sequence = await self._blobs.read(tenant, name)
                if record is not None and artifact in record.users:
                    await self.release(tenant, name, record, sequence, [artifact])

    async def sweep_forever(self, every_s: float) -> None:
        """Sweep at random intervals around `every_s`, so that instances do not sweep at the same time."""
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
        """Check every record once, and return how many blobs were deleted."""
        removed = 0
        async for entries in self._kv.pages():
            records = [entry for entry in entries if entry.data and keys.is_blob_key(entry.key)]
            for tenant, name, record, sequence, gone in await self._candidates(records):
                with contextlib.suppress(EntryChanged):
                    removed += await self.release(tenant, name, record, sequence, gone)
            await asyncio.sleep(_PAUSE_S)
        return removed

    async def _candidates(self, entries: list[Entry]) -> list[tuple[str, str, BlobRecord, int, list[str]]]:
        """Return the records that seem to have users without a reference, with the ids of those users."""
        parsed = [(entry, record) for entry in entries if (record := blob_record(entry.data)) is not None]
        found_records = [(*keys.parse_blob_key(entry.key), record, entry.sequence) for entry, record in parsed]
        due = [
            (tenant, artifact)
            for tenant, _, record, _ in found_records
            for artifact, user in record.users.items()
            if self._is_old(user)
        ]
        found = await self._references.read_many(due)
        purged = await self._purged(found)
        candidates = []
        for tenant, name, record, sequence in found_records:
            gone = [
                artifact
                for artifact, user in record.users.items()
                if self._is_old(user)
                and (
                    (tenant, artifact) in purged
                    or (reference := found.get((tenant, artifact))) is None
                    or reference.blob != name
                )
            ]
            if gone or (not record.users and record.at < now() - self._grace_ms):
                candidates.append((tenant, name, record, sequence, gone))
        return candidates

    def _is_old(self, user: BlobUser) -> bool:
        return user.void or user.at < now() - self._grace_ms

    async def _purged(self, found: dict[tuple[str, str], Reference]) -> set[tuple[str, str]]:
        """Delete the references whose run was purged, and return them."""
        old = {who: each for who, each in found.items() if _follows_run(each)}
        runs = sorted({(tenant, each.run_id) for (tenant, _), each in old.items() if each.run_id})
        # Requests first: a run that starts meanwhile has a log by then.
        there = await self._existing(subjects.REQUESTS, runs, subjects.request) | await self._existing(
            subjects.RUNS, runs, subjects.log
        )
        purged = {who for who, each in old.items() if each.run_id and (who[0], each.run_id) not in there}
        for tenant, artifact in purged:
            await self._references.delete(tenant, artifact)
        return purged

    async def _existing(
        self, stream: str, runs: list[tuple[str, str]], subject: Callable[[str, str], str]
    ) -> set[tuple[str, str]]:
        """Return the runs of which the stream still holds a message."""
        subjects_of, found = {subject(*run): run for run in runs}, set()
        reader = await self._bus.reader(stream)
        for start in range(0, len(runs), _RUNS_PER_READ):
            messages = await reader.latest(*list(subjects_of)[start : start + _RUNS_PER_READ])
            found |= {(message.headers or {}).get("Nats-Subject", "") for message in messages}
        return {run for name, run in subjects_of.items() if name in found}

    async def release(self, tenant: str, name: str, record: BlobRecord, sequence: int, gone: list[str]) -> int:
        """Remove the users that have no reference, and delete the bytes with the last of them.

        Returns how many blobs were deleted.

        Raises EntryChanged when another writer changed the record; nothing is lost then.
        """
        if record.to_delete:
            return await self._finish_deletion(tenant, name, record, sequence)
        revisions = {
            artifact: await self._references.listing_revision(tenant, record.users[artifact].place, artifact)
            for artifact in gone
        }
        voided = {
            artifact: user.model_copy(update={"void": True}) if artifact in revisions else user
            for artifact, user in record.users.items()
        }
        sequence = await self._blobs.write(
            tenant, name, record.model_copy(update={"users": voided, "at": now()}), after=sequence
        )
        # Claims made before this write are refused from now on, so the following reads are final.
        alive = {artifact for artifact in gone if await self._references.exists(tenant, artifact, name)}
        for artifact in revisions.keys() - alive:
            await self._references.remove_listing(
                tenant, record.users[artifact].place, artifact, revision=revisions[artifact]
            )
        left = {
            artifact: user for artifact, user in record.users.items() if artifact not in revisions or artifact in alive
        }
        rest = BlobRecord(size=record.size, users=left, to_delete=not left, at=now())
        sequence = await self._blobs.write(tenant, name, rest, after=sequence)
        return await self._remove(tenant, name, sequence) if rest.to_delete else 0

    async def _remove(self, tenant: str, name: str, sequence: int) -> int:
        """Delete the bytes of a name that this call has marked to be deleted, then its record.

        If the deletion fails, it may still happen later. So the record stays, and nobody may use the name again.
        """
        await self._bucket.remove(keys.object_key(tenant, name))
        await self._blobs.delete(tenant, name, after=sequence)
        logger.info("blob_removed", tenant=tenant, blob=name)
        return 1

    async def _finish_deletion(self, tenant: str, name: str, record: BlobRecord, sequence: int) -> int:
        """Finish a deletion that another instance began at least a day ago: none of its requests is in progress any more."""
        return await self._remove(tenant, name, sequence) if record.at < now() - _DAY_MS else 0

    async def sweep_orphans(self, older_ms: int) -> int:
        """Delete objects without a record, which a late put can leave behind. Returns how many."""
        if not await is_ours(self._kv, self._bucket):
            logger.warning(
                "bucket_not_ours",
                advice="objects without a record are left alone: the bucket was filled under another NATS",
            )
            return 0
        removed, after = 0, None
        while objects := await self._bucket.listed(after, _PAGE_OBJECTS):
            after = objects[-1].key
            for each in objects:
                with contextlib.suppress(InvalidName, EntryChanged, UnknownVersion):
                    tenant, name = keys.parse_object_key(each.key)
                    if each.modified_at < now() - older_ms:
                        removed += await self._remove_orphan(tenant, name)
        return removed

    async def sweep_lists(self, older_ms: int) -> None:
        """Delete list entries without a reference that no blob record leads to."""
        async for entries in self._kv.pages():
            await self._references.remove_stale_listings(
                [entry for entry in entries if entry.data and keys.is_place_key(entry.key)], older_ms
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
