"""A reference always has its bytes: puts of the same id, and puts that were stopped, over a real NATS server."""

import asyncio

import pytest

from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, StorageUnavailable
from tests.artifact_store.inside import Inside
from tests.support.stores import Store
from tests.support.waiting import wait_until


async def test_a_put_that_slept_through_its_grace_writes_no_reference(embedded: Store, inside: Inside) -> None:
    """A stopped process that wakes up is refused by its entry's sequence, not by a clock, and leaves no bytes."""
    put = embedded.put_of(b"sleeper")
    entry = await inside.begin(put, b"sleeper")
    await inside.collector.sweep()
    with pytest.raises(StorageUnavailable) as failure:
        await inside.store.put_stream(put, entry, [b"sleeper"], lambda: "text/plain")
    assert failure.value.retryable
    assert not embedded.objects()
    assert not await inside.is_known(put)
    ref = (await inside.store.put(put, b"sleeper")).ref
    assert (await embedded.client.read(embedded.tenant, ref.artifact_id, limit=100))[1] == b"sleeper"


async def test_attempts_of_one_put_share_an_object(embedded: Store, inside: Inside) -> None:
    """A caller that has waited in vain sends its put again, while the first one is still under way."""
    put = embedded.put_of(b"twice")
    first, second = await inside.begin(put, b"twice"), await inside.begin(put, b"twice")
    assert first == second
    refs = [await inside.store.put_stream(put, entry, [b"twice"], lambda: "text/plain") for entry in (first, second)]
    assert refs[0] == refs[1]
    assert embedded.objects() == [first.object_key]


async def test_other_bytes_take_over_from_a_put_that_did_not_end(embedded: Store, inside: Inside) -> None:
    """A tool that is called again may show other pieces. Of the two puts one wins, and the other one is refused."""
    put = embedded.put_of(b"first")
    entry = await inside.begin(put, b"first")
    other = embedded.put_of(b"second").model_copy(update={"artifact_id": put.artifact_id})
    ref = (await inside.store.put(other, b"second")).ref
    with pytest.raises(StorageUnavailable):
        await inside.store.put_stream(put, entry, [b"first"], lambda: "text/plain")
    with pytest.raises(ArtifactInvalid):
        await inside.store.put(put, b"first")
    assert (await embedded.client.read(embedded.tenant, ref.artifact_id, limit=100))[1] == b"second"
    assert len(embedded.objects()) == 1


async def test_one_of_many_deletions_succeeds(embedded: Store, inside: Inside) -> None:
    """The others say that there is no such artifact; its bytes, its entry and its list entry go."""
    put = embedded.put_of(b"doomed", session_id="s")
    await inside.store.put(put, b"doomed")
    deletions = [embedded.client.delete(put.tenant, put.artifact_id) for _ in range(5)]
    found = await asyncio.gather(*deletions, return_exceptions=True)
    assert [type(each) for each in found if each is not None] == 4 * [ArtifactNotFound]

    async def is_unknown() -> bool:
        return not embedded.objects() and not await inside.is_known(put)

    await wait_until(is_unknown, what="everything of it is gone")
