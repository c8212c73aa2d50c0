"""The collector: finds bytes that no reference needs and removes them. Any number of copies at once do no harm.

Rule 1: never bytes that a reference holds. How that is kept is told in `shelves`.
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
from services.artifact_store.blobs import Holder, Shelf, Shelves, now, shelf_of
from services.artifact_store.bucket import Bucket
from services.artifact_store.bucket_owner import is_ours
from services.artifact_store.errors import Moved, NotUnderstood
from services.artifact_store.kv import Entry, Table
from services.artifact_store.references import Reference, References
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.shared.artifacts.errors import ArtifactFailed

logger = structlog.get_logger(__name__)

_PAGE = 1000
_PAUSE_S = 0.05
_DAY_MS = 86_400_000
_RUNS_AT_ONCE = 500


class Collector:
    """Looks at all records from time to time, and at single ones when told."""

    def __init__(self, bus: Bus, table: Table, bucket: Bucket, shelves: Shelves, references: References, grace_s: float) -> None:
        self._bus = bus
        self._table = table
        self._bucket = bucket
        self._shelves = shelves
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
            with contextlib.suppress(ArtifactFailed, BusError, Moved):
                shelf, sequence = await self._shelves.read(tenant, name)
                if shelf is not None and artifact in shelf.holders:
                    await self.release(tenant, name, shelf, sequence, [artifact])

    async def sweep_for_ever(self, every_s: float) -> None:
        """Sweep now and then; copies of the store spread out."""
        strays_at = now() + _DAY_MS
        while True:
            await asyncio.sleep(every_s * random.uniform(0.7, 1.3))  # noqa: S311, a spread, not a secret
            try:
                removed = await self.sweep()
                if now() >= strays_at:
                    strays_at = now() + _DAY_MS
                    removed += await self.sweep_strays(_DAY_MS)
                    await self.sweep_lists(_DAY_MS)
            except (ArtifactFailed, BusError) as error:
                logger.warning("sweep_failed", error=str(error))
            else:
                logger.info("sweep_ended", removed=removed)

    async def sweep(self) -> int:
        """Look at every record once and return how many blobs were removed."""
        removed = 0
        async for entries in self._table.walk():
            records = [entry for entry in entries if entry.data and subjects.is_blob_key(entry.key)]
            for tenant, name, shelf, sequence, gone in await self._suspects(records):
                with contextlib.suppress(Moved):
                    removed += await self.release(tenant, name, shelf, sequence, gone)
            await asyncio.sleep(_PAUSE_S)
        return removed

    async def _suspects(self, entries: list[Entry]) -> list[tuple[str, str, Shelf, int, list[str]]]:
        """Return the records that seem to have holders without a reference, with those holders' ids."""
        records = [(entry, shelf) for entry in entries if (shelf := shelf_of(entry.data)) is not None]
        shelves = [(*subjects.parse_blob_key(entry.key), shelf, entry.sequence) for entry, shelf in records]
        due = [(tenant, artifact) for tenant, _, shelf, _ in shelves for artifact, holder in shelf.holders.items() if self._is_due(holder)]
        found = await self._references.read_many(due)
        retired = await self._retired(found)
        suspects = []
        for tenant, name, shelf, sequence in shelves:
            gone = [
                artifact
                for artifact, holder in shelf.holders.items()
                if self._is_due(holder)
                and ((tenant, artifact) in retired or (reference := found.get((tenant, artifact))) is None or reference.blob != name)
            ]
            if gone or (not shelf.holders and shelf.at < now() - self._grace_ms):
                suspects.append((tenant, name, shelf, sequence, gone))
        return suspects

    def _is_due(self, holder: Holder) -> bool:
        return holder.void or holder.at < now() - self._grace_ms

    async def _retired(self, found: dict[tuple[str, str], Reference]) -> set[tuple[str, str]]:
        """Remove the references whose run has been purged, and return them."""
        old = {who: each for who, each in found.items() if _follows_run(each)}
        runs = sorted({(tenant, each.run_id) for (tenant, _), each in old.items() if each.run_id})
        # Requests first: a run that is taken up meanwhile has its log by then.
        there = await self._there(subjects.REQUESTS, runs, subjects.request) | await self._there(subjects.RUNS, runs, subjects.log)
        retired = {who for who, each in old.items() if each.run_id and (who[0], each.run_id) not in there}
        for tenant, artifact in retired:
            await self._references.forget(tenant, artifact)
        return retired

    async def _there(self, stream: str, runs: list[tuple[str, str]], subject: Callable[[str, str], str]) -> set[tuple[str, str]]:
        """Return those of the runs of which the stream holds something."""
        subjects_of, found = {subject(*run): run for run in runs}, set()
        reader = await self._bus.reader(stream)
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            messages = await reader.latest(*list(subjects_of)[start : start + _RUNS_AT_ONCE])
            found |= {(message.headers or {}).get("Nats-Subject", "") for message in messages}
        return {run for name, run in subjects_of.items() if name in found}

    async def release(self, tenant: str, name: str, shelf: Shelf, sequence: int, gone: list[str]) -> int:
        """Drop those of the holders that have no reference, and the bytes with the last of them. Returns how many blobs were removed.

        Raises Moved when somebody else has changed the record; nothing is lost then.
        """
        if shelf.condemned:
            return await self._finish(tenant, name, shelf, sequence)
        entered = {artifact: await self._references.entered(tenant, shelf.holders[artifact].place, artifact) for artifact in gone}
        voided = {
            artifact: holder.model_copy(update={"void": True}) if artifact in entered else holder
            for artifact, holder in shelf.holders.items()
        }
        sequence = await self._shelves.write(tenant, name, shelf.model_copy(update={"holders": voided, "at": now()}), after=sequence)
        # From here on no reference can be written under what was claimed before: what is not there now will not come.
        alive = {artifact for artifact in gone if await self._references.lives(tenant, artifact, name)}
        for artifact in entered.keys() - alive:
            await self._references.leave(tenant, shelf.holders[artifact].place, artifact, entered=entered[artifact])
        left = {artifact: holder for artifact, holder in shelf.holders.items() if artifact not in entered or artifact in alive}
        rest = Shelf(size=shelf.size, holders=left, condemned=not left, at=now())
        sequence = await self._shelves.write(tenant, name, rest, after=sequence)
        return await self._remove(tenant, name, sequence) if rest.condemned else 0

    async def _remove(self, tenant: str, name: str, sequence: int) -> int:
        """Remove the bytes of a name that this very call has condemned, then its record.

        When the removal does not end well it may still happen later, so the record stays: nobody may use the name again.
        """
        await self._bucket.remove(subjects.object_key(tenant, name))
        await self._shelves.drop(tenant, name, after=sequence)
        logger.info("blob_removed", tenant=tenant, blob=name)
        return 1

    async def _finish(self, tenant: str, name: str, shelf: Shelf, sequence: int) -> int:
        """Finish what somebody else has begun, after a day: no request of theirs is under way any more."""
        return await self._remove(tenant, name, sequence) if shelf.at < now() - _DAY_MS else 0

    async def sweep_strays(self, older_ms: int) -> int:
        """Remove objects that no record knows: what a put brought whose record had gone meanwhile. Returns how many."""
        if not await is_ours(self._table, self._bucket):
            logger.warning("bucket_not_ours", advice="objects without a record are left alone: the bucket was filled under another NATS")
            return 0
        removed, after = 0, None
        while objects := await self._bucket.listed(after, _PAGE):
            after = objects[-1].key
            for each in objects:
                with contextlib.suppress(InvalidName, Moved, NotUnderstood):
                    tenant, name = subjects.parse_object_key(each.key)
                    if each.modified_at < now() - older_ms:
                        removed += await self._remove_stray(tenant, name)
        return removed

    async def sweep_lists(self, older_ms: int) -> None:
        """Take entries without a reference off the lists, where no blob leads to them any more."""
        async for entries in self._table.walk():
            await self._references.tidy([entry for entry in entries if entry.data and subjects.is_place_key(entry.key)], older_ms)
            await asyncio.sleep(_PAUSE_S)

    async def _remove_stray(self, tenant: str, name: str) -> int:
        shelf, sequence = await self._shelves.read(tenant, name)
        if shelf is not None:
            return 0
        condemned = await self._shelves.write(tenant, name, Shelf(size=0, condemned=True, at=now()), after=sequence)
        return await self._remove(tenant, name, condemned)


def _follows_run(reference: Reference) -> bool:
    created_at = reference.ref.created_at or 0
    return reference.run_id is not None and reference.ref.expires_at is None and created_at < now() - _DAY_MS
