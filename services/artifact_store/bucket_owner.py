"""Ownership of the bucket: objects without a record are deleted only if the bucket and the KV store hold the same random mark.

Without this check, a bucket that two deployments share, or whose keys were lost with a NATS volume, would look like
garbage.
"""

from contracts.ids import new_id
from services.artifact_store.bucket import Bucket
from services.artifact_store.errors import BytesMissing, EntryChanged
from services.artifact_store.kv import KeyValueStore

_KEY = "owner"
_OBJECT = "runwire/owner"
_BYTES = 32


async def claim_bucket(kv: KeyValueStore, bucket: Bucket) -> None:
    """Write our mark into a bucket without a mark.

    If only the bucket lost its mark, write it again only while the bucket is empty.
    """
    if await bucket.size(_OBJECT) is not None:
        return
    mark = (await kv.read_from_leader(_KEY)).data
    if mark and await bucket.listed(None, 1):
        return
    if not mark:
        mark = new_id().encode()
        try:
            await kv.write(_KEY, mark, after=0)
        except EntryChanged:  # Another instance of the store was faster, and writes its mark.
            return
    await bucket.write(_OBJECT, mark)


async def is_ours(kv: KeyValueStore, bucket: Bucket) -> bool:
    """Whether the bucket holds the same mark as the KV store."""
    mark = (await kv.read_from_leader(_KEY)).data
    try:
        return bool(mark) and await bucket.read(_OBJECT, 0, _BYTES) == mark
    except BytesMissing:
        return False
