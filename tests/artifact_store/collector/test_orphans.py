"""Objects that no entry names go from our own bucket, and from no other."""

import secrets

from contracts.wire import keys
from contracts.wire.names import new_id
from tests.artifact_store.inside import HOUR_MS, Inside
from tests.support.stores import Store


async def test_only_objects_that_no_entry_names_go(embedded: Store, inside: Inside) -> None:
    """A put under way and a stored artifact keep theirs, and so does everything that is no object of the store."""
    put = embedded.put_of(b"under way")
    entry = await inside.begin(put, b"under way")
    ref = await embedded.client.put(embedded.tenant, b"kept")
    kept = embedded.objects()
    late = keys.object_key(embedded.tenant, keys.new_object_name(ref.artifact_id))
    strays = [late, *(keys.object_key(embedded.tenant, keys.new_object_name(new_id())) for _ in range(3))]
    foreign = f"{embedded.tenant}/readme"
    for key in (*strays, foreign):
        await inside.bucket.write(key, b"x")
    await inside.sweep_bucket(HOUR_MS)
    assert set(strays) <= set(embedded.objects()), "they are too young"
    assert await inside.sweep_bucket(-HOUR_MS) >= len(strays)
    assert sorted(embedded.objects()) == sorted([*kept, foreign])
    assert entry.object_key in kept
    assert (await embedded.client.read(embedded.tenant, ref.artifact_id, limit=10))[1] == b"kept"


async def test_nothing_goes_from_a_bucket_of_somebody_else(embedded: Store, inside: Inside) -> None:
    """Under another NATS, or after its volume was lost, nobody knows what the objects are."""
    stray = keys.object_key(embedded.tenant, keys.new_object_name(new_id()))
    await inside.bucket.write(stray, secrets.token_bytes(10))
    entry = await inside.kv.get_from_leader(keys.bucket_owner())
    changed = await inside.kv.update(keys.bucket_owner(), b"somebody else's", revision=entry.sequence)
    assert await inside.sweep_bucket(-HOUR_MS) == 0
    assert stray in embedded.objects()
    await inside.kv.update(keys.bucket_owner(), entry.data, revision=changed)
    assert await inside.sweep_bucket(-HOUR_MS) >= 1
    assert stray not in embedded.objects()
