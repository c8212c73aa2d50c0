"""Delete objects that no entry names: a process wrote them that was suspended until its put was given up.

Names of objects are used once, and an entry names them before they are written. So an object that no entry names will
not be named later.
"""

from collections.abc import Iterator
from contextlib import suppress

import structlog

from contracts.wire import keys
from contracts.wire.ids import unix_ms
from contracts.wire.names import InvalidName
from services.artifact_store.collector.bucket_owner import is_ours
from services.artifact_store.collector.shared_objects import SharedObjects
from services.artifact_store.objects.bucket import Bucket
from services.artifact_store.references.entries import References
from services.messaging.kv import Bucket as KeyValueBucket

logger = structlog.get_logger(__name__)

_PAGE_OBJECTS = 1000


async def remove_orphans(kv: KeyValueBucket, bucket: Bucket, references: References, older_ms: int) -> int:
    """Delete objects of that age that no entry names, if the bucket is ours, and return how many."""
    if not await is_ours(kv, bucket):
        logger.warning(
            "bucket_not_ours",
            advice="objects without an entry are left alone: the bucket was filled under another NATS",
        )
        return 0
    shared = await SharedObjects.found(kv, older_ms)
    removed, after = 0, None
    while objects := await bucket.listed(after, _PAGE_OBJECTS):
        after = objects[-1].key
        for tenant, name in _names([each.key for each in objects if each.modified_at < unix_ms() - older_ms]):
            is_unused = shared.release if keys.is_shared_object(name) else references.is_unnamed
            if await is_unused(tenant, name):
                await bucket.remove(keys.object_key(tenant, name))
                removed += 1
    return removed


def _names(object_keys: list[str]) -> Iterator[tuple[str, str]]:
    """Yield tenant and name of each object; the bucket may hold other things."""
    for key in object_keys:
        with suppress(InvalidName):
            yield keys.parse_object_key(key)
