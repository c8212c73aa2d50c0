"""Delete artifacts on request; and the garbage collector, for those whose time is over and what crashes leave behind.

`Deletions` deletes the bytes of an artifact, then what is known about it. Several instances may delete the same one at
once. The beginning of a deletion is stored first, so the next sweep finishes one that fails or is cut short.

Rule 1: the collector never deletes bytes that a reference names. `entries` explains how.
Rule 2: it skips pending entries younger than the grace period, since their put may still be in progress.
Rule 3: an artifact without an expiry of its own lives as long as its run. It is deleted once the run's log is purged
and its request is gone; a run may still wait for its start.
Rule 4: entries of an unknown version, as after a downgrade, are skipped.
Rule 5: what an artifact key names is removed once that artifact is gone (`entries`).

`remove_orphans` deletes objects that no entry names: their writer was suspended until its put was given up.

Rule 6: names of objects are used once, and an entry names them before they are written. So an object that no entry
names will not be named later.
Rule 7: nothing is deleted unless the S3 and the KV bucket hold the same random mark. Without this check, a bucket that
two deployments share, or whose entries were lost with a NATS volume, would look like garbage.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import structlog

from contracts.wire import keys, subjects
from contracts.wire.names import InvalidName, new_id, unix_ms
from services.artifact_store import entries
from services.artifact_store.bucket import Bucket, BytesMissing
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket as KeyValueBucket
from services.messaging.kv import Entry
from services.shared.artifacts.errors import ArtifactFailed

logger = structlog.get_logger(__name__)


class Deletions:
    """Deletions of this instance, at once or in the background."""

    def __init__(self, references: entries.References, bucket: Bucket) -> None:
        self._references = references
        self._bucket = bucket
        self._begun: asyncio.Queue[entries.ArtifactEntry] = asyncio.Queue()

    async def begin(self, entry: entries.ArtifactEntry) -> None:
        """Hide an artifact, and delete its bytes in the background, else by the next sweep. Raises Outdated."""
        self._begun.put_nowait(await self._hide(entry))

    async def finish_forever(self) -> None:
        """Finish the deletions of `begin`, without end."""
        while True:
            entry = await self._begun.get()
            with suppress(ArtifactFailed, BusError):
                await self._finish(entry)

    async def delete(self, entry: entries.ArtifactEntry) -> None:
        """Delete an artifact, or finish to delete it. Raises Outdated when another process was faster."""
        is_hidden = isinstance(entry.content, entries.Unfinished) and entry.content.state == "deleting"
        await self._finish(entry if is_hidden else await self._hide(entry))

    async def _hide(self, entry: entries.ArtifactEntry) -> entries.ArtifactEntry:
        deleting = entries.Unfinished(state="deleting", reference=entry.reference)
        return await self._references.replace(entry, deleting)

    async def _finish(self, entry: entries.ArtifactEntry) -> None:
        await self._bucket.remove(entry.object_key)
        await self._references.remove(entry)
        logger.info("artifact_removed", tenant=entry.tenant, artifact_id=entry.artifact)


_PAGE_OBJECTS = 1000
_MARK_BYTES = 32


async def claim_bucket(kv: KeyValueBucket, bucket: Bucket) -> None:
    """Write our mark into a bucket without one; where only the bucket has lost it, only while it is empty."""
    if await bucket.size(keys.OWNER_OBJECT_KEY) is not None:
        return
    mark = (await kv.get_from_leader(keys.bucket_owner())).data
    if mark and await bucket.listed(None, 1):
        return
    if not mark:
        mark = new_id().encode()
        try:
            await kv.update(keys.bucket_owner(), mark, revision=0)
        except Outdated:  # Another instance of the store was faster, and writes its mark.
            return
    await bucket.write(keys.OWNER_OBJECT_KEY, mark)


async def is_ours(kv: KeyValueBucket, bucket: Bucket) -> bool:
    """Whether the bucket holds the same mark as the KV store."""
    mark = (await kv.get_from_leader(keys.bucket_owner())).data
    try:
        return bool(mark) and await bucket.read(keys.OWNER_OBJECT_KEY, 0, _MARK_BYTES, _MARK_BYTES) == mark
    except BytesMissing:
        return False


async def remove_orphans(kv: KeyValueBucket, bucket: Bucket, references: entries.References, older_ms: int) -> int:
    """Delete objects of that age that no entry names, if the bucket is ours, and return how many."""
    if not await is_ours(kv, bucket):
        logger.warning(
            "bucket_not_ours",
            advice="objects without an entry are left alone: the bucket was filled under another NATS",
        )
        return 0
    removed, after = 0, None
    while objects := await bucket.listed(after, _PAGE_OBJECTS):
        after = objects[-1].key
        for key in [each.key for each in objects if each.modified_at < unix_ms() - older_ms]:
            with suppress(InvalidName):  # The bucket may hold other things.
                if await references.is_unnamed(*keys.parse_object_key(key)):
                    await bucket.remove(key)
                    removed += 1
    return removed


_PAUSE_S = 0.05
_DAY_MS = 86_400_000
_RUNS_PER_READ = 500


class GarbageCollector:
    """Checks all entries from time to time, and once a day the bucket. Several instances may do so at once."""

    def __init__(
        self,
        bus: Bus,
        kv: KeyValueBucket,
        bucket: Bucket,
        references: entries.References,
        artifact_keys: entries.ArtifactKeys,
        deletions: Deletions,
        grace_s: float,
    ) -> None:
        self._bus = bus
        self._kv = kv
        self._bucket = bucket
        self._references = references
        self._artifact_keys = artifact_keys
        self._deletions = deletions
        self._grace_ms = int(grace_s * 1000)

    async def sweep_forever(self, every_s: float) -> None:
        """Sweep at random intervals around `every_s`, so that instances do not sweep at the same time."""
        daily_at = unix_ms() + _DAY_MS
        while True:
            await asyncio.sleep(every_s * random.uniform(0.7, 1.3))  # noqa: S311, a spread, not a secret
            try:
                removed = await self.sweep()
                if unix_ms() >= daily_at:
                    daily_at = unix_ms() + _DAY_MS
                    removed += await remove_orphans(self._kv, self._bucket, self._references, _DAY_MS)
            except (ArtifactFailed, BusError) as error:
                logger.warning("sweep_failed", error=str(error))
            else:
                logger.info("sweep_ended", removed=removed)

    async def sweep(self) -> int:
        """Check every entry once, and return how many artifacts were deleted."""
        removed = 0
        async for page in self._kv.pages():
            for entry in await self._due(page):
                with suppress(Outdated):
                    await self._deletions.delete(entry)
                    removed += 1
            await self._artifact_keys.remove_stale(page)
            await asyncio.sleep(_PAUSE_S)
        return removed

    async def _due(self, page: list[Entry]) -> list[entries.ArtifactEntry]:
        """Return the artifacts of a page that are to be deleted.

        Those that have expired, are being deleted or were never finished, and those whose run was purged. The run of an
        artifact younger than a day is not looked at.
        """
        due: list[entries.ArtifactEntry] = []
        of_runs: list[tuple[entries.ArtifactEntry, tuple[str, str]]] = []
        now = unix_ms()
        for entry in [entry for found in page if (entry := _artifact_of(found)) is not None]:
            match entry.content:
                case entries.Unfinished(state=state, at=at):
                    due += [entry] if state == "deleting" or at < now - self._grace_ms else []
                case entries.Reference(is_expired=True):
                    due.append(entry)
                case entries.Reference(ref=ref, run_id=run) if run is not None and ref.expires_at is None:
                    of_runs += [(entry, (entry.tenant, run))] if (ref.created_at or 0) < now - _DAY_MS else []
        runs = sorted({run for _, run in of_runs})
        # Requests first: a run that starts meanwhile has a log by then.
        there = await self._existing(subjects.REQUESTS, runs, subjects.request)
        there |= await self._existing(subjects.RUNS, runs, subjects.log)
        return due + [entry for entry, run in of_runs if run not in there]

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


def _artifact_of(entry: Entry) -> entries.ArtifactEntry | None:
    """Return an artifact's entry; None for other entries and for those of an unknown version."""
    if not entry.data or not keys.reference.begins(entry.key):
        return None
    try:
        content = entries.parsed(entry.data)
    except entries.UnknownVersion:
        return None
    tenant, artifact = keys.reference.parsed(entry.key)
    return entries.ArtifactEntry(tenant, artifact, content, entry.sequence) if content else None
