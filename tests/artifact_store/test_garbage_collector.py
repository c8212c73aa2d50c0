"""Bytes go when no reference needs them, and never before: whatever comes in between."""

import asyncio
import random
import secrets
from collections.abc import Callable

import pytest

from contracts import keys, subjects
from contracts.artifacts import DeleteArtifact, GetArtifact
from contracts.events import RunStarted
from contracts.ids import new_id
from contracts.keys import object_key
from contracts.records import Record
from contracts.runs import RunLimits, RunRequested
from services.artifact_store.blobs import MAX_BLOB_USERS, Blobs
from services.artifact_store.bucket import Bucket
from services.artifact_store.garbage_collector import GarbageCollector
from services.artifact_store.kv import KeyValueStore
from services.artifact_store.references import References
from services.artifact_store.settings import ArtifactStoreSettings
from services.artifact_store.store import ArtifactStore
from services.messaging.connection import Bus
from services.shared.artifacts.errors import ArtifactNotFound, StorageUnavailable
from tests.support.stores import Store
from tests.support.waiting import wait_until

_HOUR_S = 3600


class Inside:
    """The parts of a store, to do by hand what a process does in one go."""

    def __init__(
        self,
        bus: Bus,
        settings: ArtifactStoreSettings,
        grace_s: float = 0.0,
        bucket: Callable[[ArtifactStoreSettings], Bucket] = Bucket,
    ) -> None:
        self.kv = KeyValueStore(bus)
        self.bucket = bucket(settings)
        self.blobs = Blobs(self.kv)
        self.references = References(self.kv, self.blobs)
        self.collector = GarbageCollector(bus, self.kv, self.bucket, self.blobs, self.references, grace_s)
        self.store = ArtifactStore(self.bucket, self.blobs, self.references, settings, self.collector.hint)


@pytest.fixture
def inside(embedded: Store) -> Inside:
    """With a grace of nothing: a collector that takes whatever it may take."""
    return Inside(embedded.bus, embedded.settings)


async def test_a_put_that_died_before_its_reference_is_collected_after_the_grace(
    embedded: Store, inside: Inside
) -> None:
    """The claim says who was about to come; its bytes and its entry in the lists go with it."""
    put = embedded.put_of(b"half done", session_id="s")
    claim = await inside.store.claim(put)
    await inside.store.add_listing(put)
    await inside.bucket.write(claim.object_key, b"half done")
    patient = Inside(embedded.bus, embedded.settings, grace_s=_HOUR_S)
    await patient.collector.sweep()
    assert embedded.objects() == [claim.object_key]
    await inside.collector.sweep()
    assert not embedded.objects()
    assert (await inside.blobs.read(embedded.tenant, claim.name))[0] is None
    assert not (await embedded.client.list(embedded.tenant, session="s")).artifacts


async def test_a_put_that_slept_through_its_grace_writes_no_reference(embedded: Store, inside: Inside) -> None:
    """A stopped process that wakes up is refused by the record's guard, not by a clock; its caller begins again."""
    put = embedded.put_of(b"sleeper")
    claim = await inside.store.claim(put)
    await inside.bucket.write(claim.object_key, b"sleeper")
    await inside.collector.sweep()
    await inside.bucket.write(claim.object_key, b"sleeper")  # What was in its socket when it was stopped.
    with pytest.raises(StorageUnavailable):
        await inside.store.write_reference(put, claim, "text/plain")
    ref = await inside.store.put(put, b"sleeper")
    assert (await embedded.client.read(embedded.tenant, ref.artifact_id, limit=100))[1] == b"sleeper"


async def test_a_reference_written_while_the_collector_looks_keeps_its_bytes(embedded: Store, inside: Inside) -> None:
    """The collector has seen no reference; one comes before it voids the user: it finds it on its second look."""
    put = embedded.put_of(b"just in time")
    claim = await inside.store.claim(put)
    await inside.bucket.write(claim.object_key, b"just in time")
    record, sequence = await inside.blobs.read(embedded.tenant, claim.name)
    assert record is not None
    await inside.store.write_reference(put, claim, "text/plain")
    assert await inside.collector.release(embedded.tenant, claim.name, record, sequence, [put.artifact_id]) == 0
    await inside.collector.sweep()
    assert (await embedded.client.read(embedded.tenant, put.artifact_id, limit=100))[1] == b"just in time"


async def test_a_condemned_name_is_not_used_again(embedded: Store, inside: Inside) -> None:
    """A removal that was begun may still happen at any time, so the same bytes go under another name meanwhile."""
    put = embedded.put_of(b"doomed")
    claim = await inside.store.claim(put)
    record, sequence = await inside.blobs.read(embedded.tenant, claim.name)
    assert record is not None
    to_delete = record.model_copy(update={"users": {}, "to_delete": True})
    await inside.blobs.write(embedded.tenant, claim.name, to_delete, after=sequence)
    ref = await embedded.client.put(embedded.tenant, b"doomed")
    assert embedded.objects() == [object_key(embedded.tenant, f"{ref.sha256}-1")]
    await inside.bucket.remove(claim.object_key)  # The removal of a collector that was stopped meanwhile.
    await inside.collector.sweep()
    assert (await embedded.client.read(embedded.tenant, ref.artifact_id, limit=100))[1] == b"doomed"


async def test_a_blob_with_many_holders_gets_a_second_name(embedded: Store, inside: Inside) -> None:
    """So that a record does not grow with them."""
    await asyncio.gather(*(embedded.client.put(embedded.tenant, b"popular") for _ in range(3)))
    name = embedded.objects()[0].rpartition("/")[2]
    record, sequence = await inside.blobs.read(embedded.tenant, name)
    assert record is not None
    user = next(iter(record.users.values()))
    full = {**record.users, **{new_id(): user for _ in range(MAX_BLOB_USERS - len(record.users))}}
    await inside.blobs.write(embedded.tenant, name, record.model_copy(update={"users": full}), after=sequence)
    refs = [await embedded.client.put(embedded.tenant, b"popular") for _ in range(2)]
    assert [key.rpartition("/")[2] for key in embedded.objects()] == [name, f"{name}-1"]
    for ref in refs:
        await embedded.client.delete(embedded.tenant, ref.artifact_id)
    await wait_until(lambda: len(embedded.objects()) == 1, what="the second name is gone")


async def test_what_belonged_to_a_purged_run_goes(
    embedded: Store, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact without a time of its own is kept as long as its run's log, and a day at least."""
    kept, purged = new_id(), new_id()
    request = RunRequested(run_id=kept, tenant=embedded.tenant, requested_at=0, trace_id=kept, query="?")
    started = RunStarted(run_id=kept, tenant=embedded.tenant, request=request, limits=RunLimits())
    await embedded.bus.publish(subjects.log(embedded.tenant, kept), Record(events=[started]).model_dump_json().encode())
    one = await embedded.client.put(embedded.tenant, b"of a run that is there", run=kept)
    two = await embedded.client.put(embedded.tenant, b"of a run that is gone", run=purged)
    waiting = RunRequested(run_id=new_id(), tenant=embedded.tenant, requested_at=0, trace_id=kept, query="?")
    await embedded.bus.publish(subjects.request(embedded.tenant, waiting.run_id), waiting.model_dump_json().encode())
    three = await embedded.client.put(embedded.tenant, b"of a run that waits for a planner", run=waiting.run_id)
    await inside.collector.sweep()
    assert len(embedded.objects()) == 3
    monkeypatch.setattr("services.artifact_store.garbage_collector._DAY_MS", -1)
    await inside.collector.sweep()
    assert (await embedded.client.head(embedded.tenant, one.artifact_id)).ref == one
    assert (await embedded.client.head(embedded.tenant, three.artifact_id)).ref == three
    with pytest.raises(ArtifactNotFound):
        await embedded.client.head(embedded.tenant, two.artifact_id)
    assert len(embedded.objects()) == 2


async def test_objects_without_a_record_go_from_our_own_bucket_alone(embedded: Store, inside: Inside) -> None:
    """And only those that look like blobs. Under another NATS, or after its volume was lost, nothing is touched."""
    ref = await embedded.client.put(embedded.tenant, b"kept")
    stray = object_key(embedded.tenant, secrets.token_hex(32))
    foreign = f"{embedded.tenant}/readme"
    for key in (stray, foreign):
        await inside.bucket.write(key, b"x")
    await inside.collector.sweep_orphans(_HOUR_S * 1000)
    assert stray in embedded.objects()
    entry = await inside.kv.read_from_leader("owner")
    await inside.kv.write("owner", b"somebody else's", after=entry.sequence)
    assert await inside.collector.sweep_orphans(-_HOUR_S * 1000) == 0
    await inside.kv.write("owner", entry.data, after=(await inside.kv.read_from_leader("owner")).sequence)
    assert await inside.collector.sweep_orphans(-_HOUR_S * 1000) >= 1
    assert sorted(embedded.objects()) == sorted([foreign, object_key(embedded.tenant, ref.sha256)])


async def test_what_a_later_version_has_written_is_left_alone(embedded: Store, inside: Inside) -> None:
    """After a downgrade its references hold their bytes, and its records theirs; puts of the same bytes say why they fail."""
    kept = await embedded.client.put(embedded.tenant, b"a reference of tomorrow")
    await inside.kv.put(keys.reference_key(embedded.tenant, kept.artifact_id), b'{"v": 9, "points": "elsewhere"}')
    other = await embedded.client.put(embedded.tenant, b"a record of tomorrow")
    await inside.kv.put(keys.blob_key(embedded.tenant, other.sha256), b'{"v": 9, "holders": "elsewhere"}')
    before = embedded.objects()
    await inside.collector.sweep()
    await inside.collector.sweep_orphans(-_HOUR_S * 1000)
    assert embedded.objects() == before
    with pytest.raises(StorageUnavailable, match="later version") as failure:
        await embedded.client.put(embedded.tenant, b"a record of tomorrow")
    assert not failure.value.retryable
    assert (await embedded.client.read(embedded.tenant, other.artifact_id, limit=100))[1] == b"a record of tomorrow"


async def test_entries_of_lists_without_a_reference_go_after_a_day(embedded: Store, inside: Inside) -> None:
    """What a put entered that had lost its claim meanwhile; nothing else leads to it."""
    kept = await embedded.client.put(embedded.tenant, b"kept", session="s")
    lost = embedded.put_of(b"lost", session_id="s")
    await inside.store.add_listing(lost)
    pattern = keys.places_of(embedded.tenant, "s", None)
    await inside.collector.sweep_lists(_HOUR_S * 1000)
    assert len(await inside.kv.matching(pattern, 0, 10)) == 2
    await inside.collector.sweep_lists(-_HOUR_S * 1000)
    (left,) = await inside.kv.matching(pattern, 0, 10)
    assert left.key.endswith(kept.artifact_id)


class Dawdling(Bucket):
    """Takes its time before and after it speaks to S3, so that everything else happens in between."""

    async def size(self, key: str) -> int | None:
        """Look, slowly."""
        await _dawdle()
        found = await super().size(key)
        await _dawdle()
        return found

    async def write(self, key: str, body: bytes) -> None:
        """Write, slowly."""
        await _dawdle()
        await super().write(key, body)
        await _dawdle()

    async def remove(self, key: str) -> None:
        """Remove, slowly."""
        await _dawdle()
        await super().remove(key)
        await _dawdle()


async def _dawdle() -> None:
    await asyncio.sleep(random.choice([0, 0, 0.001, 0.01, 0.03]))


class Writer:
    """Puts, reads and deletes at random; what it holds must be readable all the time."""

    def __init__(self, helper: Store, store: ArtifactStore, seed: int) -> None:
        self._helper = helper
        self._store = store
        self._chance = random.Random(seed)
        self._held: dict[str, bytes] = {}

    async def write(self, bodies: list[bytes], times: int) -> None:
        """Do so many rounds, and delete everything in the end."""
        for _ in range(times):
            body = self._chance.choice(bodies)
            self._held[await self._put(body)] = body
            artifact = self._chance.choice(list(self._held))
            await self._check(artifact)
            if self._chance.random() < 0.8:
                await self._delete(artifact)
        for artifact in list(self._held):
            await self._check(artifact)
            await self._delete(artifact)

    async def _put(self, body: bytes) -> str:
        announced = self._helper.put_of(body)
        while True:
            try:
                return (await self._store.put(announced, body)).artifact_id
            except StorageUnavailable:
                await _dawdle()

    async def _check(self, artifact: str) -> None:
        asked = GetArtifact(tenant=self._helper.tenant, artifact_id=artifact)
        assert (await self._store.get(asked))[1] == self._held[artifact]

    async def _delete(self, artifact: str) -> None:
        await self._store.delete(DeleteArtifact(tenant=self._helper.tenant, artifact_id=artifact))
        del self._held[artifact]


async def test_puts_deletions_and_collectors_at_once(store: Store) -> None:
    """Collectors without any grace against writers of the same few bytes: no reference without bytes, no bytes without one."""
    bodies = [secrets.token_bytes(50) for _ in range(2)]
    done = asyncio.Event()
    insides = [Inside(store.bus, store.settings, bucket=Dawdling) for _ in range(3)]

    async def collect(collector: GarbageCollector) -> None:
        while not done.is_set():
            await collector.sweep()

    collecting = [asyncio.create_task(collect(each.collector)) for each in insides]
    await asyncio.gather(*(Writer(store, insides[seed % 3].store, seed).write(bodies, 12) for seed in range(6)))
    done.set()
    await asyncio.gather(*collecting)

    async def is_empty() -> bool:
        await insides[0].collector.sweep()
        return not store.objects()

    await wait_until(is_empty, timeout=20, what="all bytes are gone")
