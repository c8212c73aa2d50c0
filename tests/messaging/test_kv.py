"""A bucket: values, conditions, deletions, lists and watches, on a real server."""

import contextlib

import pytest
from pydantic import BaseModel

from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import Outdated, Unavailable, Unsure
from services.messaging.kv import Bucket
from tests.support.nats_server import NatsServer


class Value(BaseModel):
    """A typed value."""

    number: int


@pytest.fixture
def bucket(bus: Bus) -> Bucket:
    return Bucket(bus, keys.ARTIFACTS_BUCKET, attempts=3)


async def test_values(bucket: Bucket) -> None:
    """Written, read from any replica and from the leader, parsed, and replaced."""
    assert (await bucket.get("a")).sequence == 0
    assert (await bucket.get_from_leader("a")).parsed(Value) is None
    written = await bucket.put("a", Value(number=1))
    for entry in (await bucket.get("a"), await bucket.get_from_leader("a")):
        assert entry.sequence == written
        assert entry.parsed(Value) == Value(number=1)
    await bucket.put("a", b"of another version")
    assert (await bucket.get("a")).parsed(Value) is None


async def test_conditions(bucket: Bucket) -> None:
    """Of an entry itself, and of another one; a deleted entry can be created again from its deletion."""
    first = await bucket.create("a", b"1")
    with pytest.raises(Outdated):
        await bucket.create("a", b"2")
    second = await bucket.update("a", b"2", revision=first)
    with pytest.raises(Outdated):
        await bucket.update("a", b"3", revision=first)
    await bucket.update("b", b"of a", revision=second, of="a")
    with pytest.raises(Outdated):
        await bucket.delete("a", revision=first)
    await bucket.delete("a", revision=second)
    with pytest.raises(Outdated):
        await bucket.update("b", b"of a", revision=second, of="a")
    gone = await bucket.get_from_leader("a")
    assert (gone.data, gone.sequence > second) == (b"", True)
    await bucket.update("a", b"4", revision=gone.sequence)


async def test_purging_leaves_no_marker_and_no_newer_value_is_lost(bucket: Bucket) -> None:
    """Up to a revision, if one is given."""
    first = await bucket.put("a", b"1")
    await bucket.put("a", b"2")
    await bucket.purge("a", upto=first)
    assert (await bucket.get("a")).data == b"2"
    await bucket.purge("a")
    assert (await bucket.get("a")).sequence == 0


async def test_attempts_end_without_a_server(bucket: Bucket, own_nats_server: NatsServer) -> None:
    """With the error of the last attempt."""
    await bucket.put("a", b"1")
    own_nats_server.kill()
    for operation in (bucket.get("a"), bucket.get_from_leader("a"), bucket.latest(">")):
        with pytest.raises(Unavailable):
            await operation
    for write in (bucket.put("a", b"2"), bucket.create("b", b"1")):
        with pytest.raises((Unavailable, Unsure)):
            await write
    own_nats_server.start()
    with contextlib.suppress(Outdated):
        await Bucket(bucket._bus, keys.ARTIFACTS_BUCKET).create("b", b"1")
    assert (await bucket.get("b")).data == b"1"
