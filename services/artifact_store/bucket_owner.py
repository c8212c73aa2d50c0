"""Whose bucket it is: the same random mark lies in the bucket and among our keys, or objects without a record are left alone.

A bucket that two deployments share, or whose keys were lost with a volume of NATS, would otherwise look as if all of it were garbage.
"""

from contracts.ids import new_id
from services.artifact_store.bucket import Bucket
from services.artifact_store.errors import BytesMissing, EntryChanged
from services.artifact_store.kv import KeyValueStore

_KEY = "owner"
_OBJECT = "runwire/owner"
_BYTES = 32


async def claim_bucket(kv: KeyValueStore, bucket: Bucket) -> None:
    """Mark a bucket that bears nobody's mark as ours; one that lost ours only while it is empty."""
    if await bucket.size(_OBJECT) is not None:
        return
    mark = (await kv.read_from_leader(_KEY)).data
    if mark and await bucket.listed(None, 1):
        return
    if not mark:
        mark = new_id().encode()
        try:
            await kv.write(_KEY, mark, after=0)
        except EntryChanged:  # Another copy of the store was faster, and writes its mark.
            return
    await bucket.write(_OBJECT, mark)


async def is_ours(kv: KeyValueStore, bucket: Bucket) -> bool:
    """Whether the mark in the bucket is the one among our keys."""
    mark = (await kv.read_from_leader(_KEY)).data
    try:
        return bool(mark) and await bucket.read(_OBJECT, 0, _BYTES) == mark
    except BytesMissing:
        return False
