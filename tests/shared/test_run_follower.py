"""A follower gives every stored record once and in order, wherever it joins and whatever is lost on the way."""

import asyncio
import random

import pytest
from nats.aio.msg import Msg

from contracts import subjects
from contracts.ids import new_id
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.guarded_write import Guard
from services.shared.run_follower import RunFollower, StoredRecord
from tests.support.nats_server import NatsServer


async def append(bus: Bus, run: str, body: bytes, after: int, headers: dict[str, str]) -> int:
    """Append a record to the run's log."""
    subject = subjects.log("default", run)
    return await guarded_write.write(bus, subject, body, Guard(subject, after), headers=headers)


async def write_run(bus: Bus, run: str, records: int, pause_s: float = 0.0) -> None:
    """Write records on both subjects of a run, and the end."""
    after = 0
    for number in range(records):
        log = number % 3 == 0 or number == records - 1
        headers = {"Runwire-Events": "done" if number == records - 1 else "asked"}
        body = f'{{"id":"{number:06}"}}'.encode()
        if log:
            after = await append(bus, run, body, after, headers)
        else:
            await bus.publish(subjects.stream("default", run), body, {"Runwire-Events": "chunk"})
        if pause_s:
            await asyncio.sleep(pause_s)


async def read(bus: Bus, run: str, log_after: int = 0, stream_after: int = 0) -> list[StoredRecord]:
    """Follow to the end."""
    follower = RunFollower(bus, "default", run, log_after=log_after, stream_after=stream_after)
    return [record async for record in follower.records() if record is not None]


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
    chance = random.Random(seed)
    arrive = RunFollower._on_message

    async def lossy(self: RunFollower, message: object) -> None:
        if chance.random() > 0.2:
            await arrive(self, message)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFollower, "_on_message", lossy)
    run = new_id()
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
    await append(bus, run, b'{"id":"0"}', 0, {"Runwire-Events": "run_started"})
    arrive, barrier = RunFollower._on_message, bus.barrier

    async def lossy(self: RunFollower, message: Msg) -> None:
        if message.data != b'{"id":"lost"}':
            await arrive(self, message)

    async def write(id_: str, events: str) -> None:
        subject = (subjects.log if events == "done" else subjects.stream)("default", run)
        await bus.publish(subject, f'{{"id":"{id_}"}}'.encode(), {"Runwire-Events": events})

    async def meanwhile() -> None:
        monkeypatch.setattr(bus, "barrier", barrier)
        await write("lost", "chunk")
        await write("next", then)
        await barrier()

    monkeypatch.setattr(RunFollower, "_on_message", lossy)
    follower = RunFollower(bus, "default", run)
    records = follower.records()
    seen = [await anext(records)]
    monkeypatch.setattr(bus, "barrier", meanwhile)
    follower._stale = True
    while len(seen) < 3:
        seen.append(await anext(records))
    assert [record.data for record in seen if record] == [b'{"id":"0"}', b'{"id":"lost"}', b'{"id":"next"}']
    await records.aclose()


async def test_a_killed_server_costs_a_listener_nothing(bus: Bus, own_nats_server: NatsServer) -> None:
    """What was stored while it was cut off is read back, in order."""
    run = new_id()
    listening = asyncio.create_task(read(bus, run))
    writing = asyncio.create_task(write_run_surely(bus, run, 40))
    await asyncio.sleep(0.2)
    own_nats_server.kill()
    own_nats_server.start()
    await asyncio.wait_for(writing, 30)
    seen = [record.sequence for record in await asyncio.wait_for(listening, 20)]
    assert seen == [record.sequence for record in await read(bus, run)]


async def write_run_surely(bus: Bus, run: str, records: int) -> None:
    """Write facts alone, through a server that goes away."""
    after = 0
    for number in range(records):
        headers = {"Runwire-Events": "done" if number == records - 1 else "asked"}
        body = f'{{"id":"{number:06}"}}'.encode()
        after = await append(bus, run, body, after, headers)
        await asyncio.sleep(0.01)


async def test_a_long_backlog_comes_in_pages_and_in_order(bus: Bus) -> None:
    """Of both subjects, which are not of one length; a record may be larger than a page."""
    run, after, large = new_id(), 0, b"x" * 40_000
    for number in range(30):
        after = await bus.publish(subjects.log("default", run), b"%d" % number + large, {"Runwire-Events": "asked"})
        for _ in range(number % 4):
            await bus.publish(
                subjects.stream("default", run), large * (25 if number == 3 else 1), {"Runwire-Events": "chunk"}
            )
    last = await bus.publish(subjects.log("default", run), b"{}", {"Runwire-Events": "done"})
    whole = [record.sequence for record in await read(bus, run)]
    assert whole == sorted(whole)
    assert (len(whole), whole[-1]) == (30 + sum(number % 4 for number in range(30)) + 1, last)
    assert [record.kind for record in await read(bus, run, log_after=after)] == ["stream"] * (len(whole) - 31) + ["log"]


async def test_a_quiet_run_says_so(bus: Bus) -> None:
    """Whoever waits can send a sign of life."""
    follower = RunFollower(bus, "default", new_id()).records(idle_s=1)
    assert await asyncio.wait_for(anext(follower), 10) is None
    await follower.aclose()
