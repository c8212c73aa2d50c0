"""What earlier versions have stored: several references to one object, with a record of its users."""

import hashlib
import json
from dataclasses import dataclass

import pytest

from contracts.wire import keys
from contracts.wire.ids import new_id, unix_ms
from services.shared.artifacts.errors import ArtifactNotFound
from tests.artifact_store.inside import HOUR_MS, Inside
from tests.support.stores import Store
from tests.support.waiting import wait_until

BODY = b"stored by an earlier version"


@dataclass
class Shared:
    """An object of an earlier version, and the artifacts that use it."""

    object_key: str
    artifacts: list[str]


@pytest.fixture(params=["", "-2"])
async def shared(request: pytest.FixtureRequest, embedded: Store, inside: Inside) -> Shared:
    """Two references to one object, as earlier versions wrote them; in the second case, under its second name."""
    digest = hashlib.sha256(BODY).hexdigest()
    name, artifacts, place = f"{digest}{request.param}", [new_id(), new_id()], keys.listing("s", None)
    for artifact in artifacts:
        ref = {"artifact_id": artifact, "mime_type": "text/plain", "size": len(BODY), "sha256": digest}
        reference = {"v": 1, "ref": ref, "session_id": "s", "run_id": None, "blob": name}
        await inside.kv.put(keys.reference_key(embedded.tenant, artifact), json.dumps(reference).encode())
        await inside.kv.put(keys.listing_key(embedded.tenant, place, artifact), b"1700000000000")
    users = {artifact: {"at": unix_ms(), "place": place, "void": False} for artifact in artifacts}
    record = {"size": len(BODY), "holders": users, "condemned": False, "at": unix_ms()}
    await inside.kv.put(keys.blob_key(embedded.tenant, name), json.dumps(record).encode())
    key = keys.object_key(embedded.tenant, name)
    await inside.bucket.write(key, BODY)
    return Shared(key, artifacts)


async def test_they_stay_readable(embedded: Store, inside: Inside, shared: Shared) -> None:
    """By id and by session, whatever the collector does."""
    await inside.collector.sweep()
    await inside.sweep_bucket(-HOUR_MS)
    for artifact in shared.artifacts:
        assert (await embedded.client.read(embedded.tenant, artifact, limit=100, session="s"))[1] == BODY
    listed = (await embedded.client.list(embedded.tenant, session="s")).artifacts
    assert {each.ref.artifact_id for each in listed} == set(shared.artifacts)


async def test_the_last_reference_takes_the_object_with_it(embedded: Store, inside: Inside, shared: Shared) -> None:
    """Not the one before; and a put of the same bytes meanwhile has an object of its own."""
    first, second = shared.artifacts
    await embedded.client.delete(embedded.tenant, first)
    with pytest.raises(ArtifactNotFound):
        await embedded.client.head(embedded.tenant, first)
    await inside.sweep_bucket(-HOUR_MS)
    assert (await embedded.client.read(embedded.tenant, second, limit=100))[1] == BODY
    again = await embedded.client.put(embedded.tenant, BODY)
    await embedded.client.delete(embedded.tenant, second)

    async def is_gone() -> bool:
        await inside.sweep_bucket(-HOUR_MS)
        return shared.object_key not in embedded.objects()

    await wait_until(is_gone, what="the shared object is gone")
    assert (await embedded.client.read(embedded.tenant, again.artifact_id, limit=100))[1] == BODY
    assert not await inside.kv.matching(f"blob.{embedded.tenant}.*", 0, 10)


async def test_a_record_that_has_just_changed_is_left_alone(embedded: Store, inside: Inside, shared: Shared) -> None:
    """An instance of the earlier version may still be running, and about to write a reference."""
    for artifact in shared.artifacts:
        await embedded.client.delete(embedded.tenant, artifact)
    await inside.sweep_bucket(HOUR_MS)
    assert shared.object_key in embedded.objects()


async def test_objects_without_a_record_go_after_a_day(embedded: Store, inside: Inside) -> None:
    """An earlier version has left them."""
    key = keys.object_key(embedded.tenant, hashlib.sha256(BODY).hexdigest())
    await inside.bucket.write(key, BODY)
    await inside.sweep_bucket(HOUR_MS)
    assert embedded.objects() == [key]
    await inside.sweep_bucket(-HOUR_MS)
    assert not embedded.objects()
