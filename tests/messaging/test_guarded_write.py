"""A fenced append is stored as the successor of what its writer has read, or not at all."""

import asyncio

import pytest

from contracts import subjects
from contracts.ids import new_id
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Moved
from tests.support.nats_server import NatsServer


async def write(bus: Bus, subject: str, record_id: str, after: int) -> int:
    """Append one record."""
    sequence, _ = await guarded_write.append(
        bus, "RUNS", subject, f'{{"id":"{record_id}"}}'.encode(), record_id, after=after, headers={}
    )
    return sequence


async def test_of_two_writers_one_wins(bus: Bus) -> None:
    """The other one is given what happened instead."""
    subject = subjects.log("default", new_id())
    first = await write(bus, subject, "a", 0)
    with pytest.raises(Moved) as moved:
        await write(bus, subject, "b", 0)
    assert moved.value.tail == [(first, b'{"id":"a"}')]


async def test_many_writers_make_one_history(bus: Bus) -> None:
    """Each decides anew from what it reads: every record is stored once, in one order."""
    subject = subjects.log("default", new_id())

    async def writer(name: str) -> None:
        seen, left = 0, 5
        while left:
            try:
                seen = await write(bus, subject, f"{name}-{left}", seen)
                left -= 1
            except Moved as moved:
                seen = moved.tail[-1][0]

    await asyncio.gather(*(writer(f"w{n}") for n in range(6)))
    stored = await (await bus.reader("RUNS")).read(subject)
    assert len(stored) == 30
    assert len({data for _, data in stored}) == 30


async def test_an_append_outlives_the_server(bus: Bus, own_nats_server: NatsServer) -> None:
    """A write whose answer is lost is settled by reading: it is stored exactly once, however long the server is away."""
    subject = subjects.log("default", new_id())
    first = await write(bus, subject, "a", 0)
    own_nats_server.kill()
    writing = asyncio.create_task(write(bus, subject, "b", first))
    await asyncio.sleep(0.3)
    own_nats_server.start()
    sequence = await asyncio.wait_for(writing, 20)
    stored = await (await bus.reader("RUNS")).read(subject)
    assert [data for _, data in stored] == [b'{"id":"a"}', b'{"id":"b"}']
    assert stored[-1][0] == sequence


async def test_a_purged_subject_is_told_by_an_empty_tail(bus: Bus) -> None:
    """What was known of it is void."""
    subject = subjects.log("default", new_id())
    first = await write(bus, subject, "a", 0)
    await bus.api("STREAM.PURGE.RUNS", {"filter": subject})
    with pytest.raises(Moved) as moved:
        await write(bus, subject, "b", first)
    assert moved.value.tail == []
