"""What is over goes, and nothing else, whatever comes in between."""

import asyncio
import random
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from contracts.artifacts import DeleteArtifact, GetArtifact
from contracts.wire import keys
from contracts.wire.names import new_id
from services.artifact_store.bucket import Bucket
from services.artifact_store.store import ArtifactStore
from services.artifact_store.sweeps import GarbageCollector
from services.shared.artifacts.errors import StorageUnavailable
from tests.artifact_store.inside import HOUR_MS, Inside
from tests.support.stores import Store
from tests.support.waiting import wait_until

T = TypeVar("T")


async def test_a_put_that_died_before_its_reference_goes_after_the_grace(embedded: Store, inside: Inside) -> None:
    """Its pending entry names its bytes and its list entry; both go with it."""
    put = embedded.put_of(b"half done", session_id="s")
    entry = await inside.begin(put, b"half done")
    patient = Inside(embedded.bus, embedded.settings, grace_s=HOUR_MS / 1000)
    await patient.collector.sweep()
    assert embedded.objects() == [entry.object_key]
    await inside.collector.sweep()
    assert not embedded.objects()
    assert not await inside.is_known(put)


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


class Dawdling(Bucket):
    """Takes its time before and after it speaks to S3, so that everything else happens in between."""

    async def _run(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        await _dawdle()
        try:
            return await super()._run(call, threads)
        finally:
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
                return (await self._store.put(announced, body)).ref.artifact_id
            except StorageUnavailable:
                await _dawdle()

    async def _check(self, artifact: str) -> None:
        asked = GetArtifact(tenant=self._helper.tenant, artifact_id=artifact)
        assert (await self._store.get(asked))[1] == self._held[artifact]

    async def _delete(self, artifact: str) -> None:
        await self._store.delete(DeleteArtifact(tenant=self._helper.tenant, artifact_id=artifact))
        del self._held[artifact]


@pytest.mark.sample(1)
async def test_puts_deletions_and_collectors_at_once(store: Store) -> None:
    """Collectors without any grace against writers: no reference without bytes, no bytes without one in the end."""
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
        await insides[0].sweep_bucket(-HOUR_MS)
        return not store.objects()

    await wait_until(is_empty, timeout=20, what="all bytes are gone")
