"""Objects that no entry names go from our own bucket, and from no other."""

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
