"""Delete objects that no entry names: a process wrote them that was suspended until its put was given up.

Rule 1: names of objects are used once, and an entry names them before they are written. So an object that no entry
names will not be named later.
Rule 2: nothing is deleted unless the S3 and the KV bucket hold the same random mark. Without this check, a bucket that
two deployments share, or whose entries were lost with a NATS volume, would look like garbage.

Delete artifacts: their bytes, then what is known about them. Several instances may delete the same one at once.

A deletion that begins is stored first, so one that fails or is cut short is finished by the next sweep.
"""

import asyncio
from contextlib import suppress

import structlog

from contracts.wire import keys
from contracts.wire.names import InvalidName, new_id, unix_ms
from services.artifact_store.errors import BytesMissing
from services.artifact_store.objects.bucket import Bucket
from services.artifact_store.references.entries import ArtifactEntry, References, Unfinished
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket as KeyValueBucket
from services.shared.artifacts.errors import ArtifactFailed

logger = structlog.get_logger(__name__)


class Deletions:
    """Deletions of this instance, at once or in the background."""

    def __init__(self, references: References, bucket: Bucket) -> None:
        self._references = references
        self._bucket = bucket
        self._begun: asyncio.Queue[ArtifactEntry] = asyncio.Queue()

    async def begin(self, entry: ArtifactEntry) -> None:
        """Hide an artifact, and delete its bytes in the background. Raises Outdated.

        The next sweep repeats what fails in the background.
        """
        self._begun.put_nowait(await self._hide(entry))

    async def finish_forever(self) -> None:
        """Finish the deletions of `begin`, without end."""
        while True:
            entry = await self._begun.get()
            with suppress(ArtifactFailed, BusError):
                await self._finish(entry)

    async def delete(self, entry: ArtifactEntry) -> None:
        """Delete an artifact, or finish to delete it. Raises Outdated when another process was faster."""
        is_hidden = isinstance(entry.content, Unfinished) and entry.content.state == "deleting"
        await self._finish(entry if is_hidden else await self._hide(entry))

    async def _hide(self, entry: ArtifactEntry) -> ArtifactEntry:
        deleting = Unfinished(state="deleting", reference=entry.reference)
        return await self._references.replace(entry, deleting)

    async def _finish(self, entry: ArtifactEntry) -> None:
        await self._bucket.remove(entry.object_key)
        await self._references.remove(entry)
        logger.info("artifact_removed", tenant=entry.tenant, artifact_id=entry.artifact)


_PAGE_OBJECTS = 1000
_MARK_BYTES = 32


async def claim_bucket(kv: KeyValueBucket, bucket: Bucket) -> None:
    """Write our mark into a bucket without a mark.

    If only the bucket lost its mark, write it again only while the bucket is empty.
    """
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


async def remove_orphans(kv: KeyValueBucket, bucket: Bucket, references: References, older_ms: int) -> int:
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
