"""Ownership of the bucket. Objects without an entry are deleted only if the S3 and the KV bucket hold the same mark.

The mark is random. Without this check, a bucket that two deployments share, or whose entries were lost with a NATS
volume, would look like garbage.
"""

from contracts.wire import keys
from contracts.wire.ids import new_id
from services.artifact_store.errors import BytesMissing
from services.artifact_store.objects.bucket import Bucket
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket as KeyValueBucket

_MARK_BYTES = 32


async def claim_bucket(kv: KeyValueBucket, bucket: Bucket) -> None:
    """Write our mark into a bucket without a mark.

    If only the bucket lost its mark, write it again only while the bucket is empty.
    """
    if await bucket.size(keys.OWNER_OBJECT_KEY) is not None:
        return
    mark = (await kv.get_from_leader(keys.ARTIFACT_OWNER_KEY)).data
    if mark and await bucket.listed(None, 1):
        return
    if not mark:
        mark = new_id().encode()
        try:
            await kv.update(keys.ARTIFACT_OWNER_KEY, mark, revision=0)
        except Outdated:  # Another instance of the store was faster, and writes its mark.
            return
    await bucket.write(keys.OWNER_OBJECT_KEY, mark)


async def is_ours(kv: KeyValueBucket, bucket: Bucket) -> bool:
    """Whether the bucket holds the same mark as the KV store."""
    mark = (await kv.get_from_leader(keys.ARTIFACT_OWNER_KEY)).data
    try:
        return bool(mark) and await bucket.read(keys.OWNER_OBJECT_KEY, 0, _MARK_BYTES) == mark
    except BytesMissing:
        return False
