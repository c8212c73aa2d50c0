"""A follower gives every stored record once and in order, wherever it joins and whatever is lost on the way."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.reads import DirectReader
from services.shared.runs.run_follower import RunFollower, StoredRecord


async def write(bus: Bus, run: str, body: bytes, events: str) -> int:
    """Store a record: a chunk in the run's stream, any other one in its log."""
    of = subjects.stream if events == "chunk" else subjects.log
    return await bus.publish(of("default", run), body, {"Runwire-Events": events})


async def write_run(bus: Bus, run: str, records: int, pause_s: float = 0.0) -> None:
    """Write records on both subjects of a run, and the end."""
    for number in range(records):
        events = "done" if number == records - 1 else "chunk" if number % 3 else "asked"
        await write(bus, run, f'{{"id":"{number:06}"}}'.encode(), events)
        await asyncio.sleep(pause_s)


async def read(bus: Bus, run: str, log_after: int = 0, stream_after: int = 0) -> list[StoredRecord]:
    follower = RunFollower(bus, "default", run, log_after=log_after, stream_after=stream_after)
    return await whole(follower)


async def whole(follower: RunFollower) -> list[StoredRecord]:
    return [record async for records in follower.records() for record in records]


def losing(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[Msg], bool]) -> None:
    """Let live copies of records be lost on their way to followers."""
    arrive = RunFollower._on_message

    def lossy(self: RunFollower, message: Msg) -> None:
        if not is_lost(message):
            arrive(self, message)

    monkeypatch.setattr(RunFollower, "_on_message", lossy)


async def test_early_and_late_listeners_see_the_same(bus: Bus) -> None:
    """One joins before the first record, some in the middle, one after the end."""
    run = new_id()
    early = asyncio.create_task(read(bus, run))
    await asyncio.sleep(0.05)
    writing = asyncio.create_task(write_run(bus, run, 60, 0.003))
    middle = []
    for _ in range(5):
        await asyncio.sleep(0.03)
        middle.append(asyncio.create_task(read(bus, run)))
    await writing
    expected = [f'{{"id":"{n:06}"}}'.encode() for n in range(60)]
    for listener in [early, *middle, asyncio.create_task(read(bus, run))]:
        assert [record.data for record in await asyncio.wait_for(listener, 10)] == expected


async def test_resuming_at_every_cursor(bus: Bus) -> None:
    """From any record's two cursors on, exactly the rest comes."""
    run = new_id()
    await write_run(bus, run, 20)
    whole = await read(bus, run)
    for position, record in enumerate(whole[:-1]):
        rest = await read(bus, run, record.log, record.stream)
        assert [r.sequence for r in rest] == [r.sequence for r in whole[position + 1 :]]


@pytest.mark.parametrize("seed", range(3))
async def test_live_messages_that_are_lost_are_read_back(bus: Bus, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in five live copies never arrives; nothing is missing and nothing comes twice."""
    chance, run = random.Random(seed), new_id()
    losing(monkeypatch, lambda _: chance.random() <= 0.2)
    listening = asyncio.create_task(read(bus, run))
    await asyncio.sleep(0.05)
    await write_run(bus, run, 60, 0.002)
    seen = [record.sequence for record in await asyncio.wait_for(listening, 15)]
    assert sorted(seen) == [record.sequence for record in await read(bus, run)]
    assert len(set(seen)) == len(seen) == 60


@pytest.mark.parametrize("then", ["chunk", "done"])
async def test_what_is_lost_while_it_reads_back_is_not_passed_over(
    bus: Bus, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tails were read; then comes a record whose live copy is lost, and then one whose copy arrives."""
    run = new_id()
    await write(bus, run, b'{"id":"0"}', "run_started")
    barrier = bus.barrier

    async def meanwhile() -> None:
        monkeypatch.setattr(bus, "barrier", barrier)
        await write(bus, run, b'{"id":"lost"}', "chunk")
        await write(bus, run, b'{"id":"next"}', then)
        await barrier()

    losing(monkeypatch, lambda message: message.data == b'{"id":"lost"}')
    follower = RunFollower(bus, "default", run)
    records = follower.records()
    seen = await anext(records)
    monkeypatch.setattr(bus, "barrier", meanwhile)
    follower.read_back()
    while len(seen) < 3:
        seen += await anext(records)
    assert [record.data for record in seen] == [b'{"id":"0"}', b'{"id":"lost"}', b'{"id":"next"}']
    await records.aclose()


@pytest.fixture
def reads(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every read and barrier of the connection."""
    found: list[str] = []
    page, barrier = DirectReader.page, bus.barrier

    async def counted_page(self: DirectReader, subject: str, *args: Any, **more: Any) -> Any:
        found.append(subject.rpartition(".")[2])
        return await page(self, subject, *args, **more)

    async def counted_barrier() -> None:
        found.append("barrier")
        await barrier()

    monkeypatch.setattr(DirectReader, "page", counted_page)
    monkeypatch.setattr(bus, "barrier", counted_barrier)
    return found


async def write_answer(bus: Bus, run: str, *, names_stream: bool = True) -> None:
    """Write a short run; its last record names the last sequence of its stream."""
    await write(bus, run, b'{"id":"first"}', "run_started,asked")
    last = [await write(bus, run, b"%d" % number, "chunk") for number in range(3)][-1]
    end = {"type": "done", "last_stream_seq": last} if names_stream else {"type": "done"}
    await write(bus, run, json.dumps({"events": [end]}).encode(), "step,done")


@pytest.mark.parametrize("end", [{"names_stream": True}, {"names_stream": False}])
async def test_a_lost_last_chunk_is_read_back_at_the_end(
    bus: Bus, reads: list[str], monkeypatch: pytest.MonkeyPatch, end: dict[str, bool]
) -> None:
    """The terminal record names a sequence that did not arrive, or names none, as those of an older planner."""
    losing(monkeypatch, lambda message: message.data == b"2")
    run = new_id()
    follower = RunFollower(bus, "default", run)
    await follower.start(is_new=True)
    await write_answer(bus, run, **end)
    found = await whole(follower)
    assert [record.data for record in found[:-1]] == [b'{"id":"first"}', b"0", b"1", b"2"]
    assert (found[-1].terminal, reads) == (True, ["stream"])


async def test_a_follower_that_ends_leaves_nothing_behind(bus: Bus) -> None:
    """Neither a subscription nor a callback, whether it was read or not."""
    run = new_id()
    await write_answer(bus, run)
    await read(bus, run)
    before, callbacks = set(bus.nc._subs), [*bus.on_reconnect]
    unread = RunFollower(bus, "default", new_id())
    await unread.start()
    await unread.stop()
    await read(bus, run)
    assert set(bus.nc._subs) == before
    assert bus.on_reconnect == callbacks
