"""A guarded write is stored as the successor of what its writer has read, or not at all."""

import asyncio
import contextlib

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Outdated, Refused, Unsure
from services.messaging.guarded_write import Guard
from tests.support.nats_server import NatsServer


async def write(bus: Bus, subject: str, record_id: str, after: int) -> int:
    return await guarded_write.write(bus, subject, record(record_id), Guard(subject, after))


def record(record_id: str) -> bytes:
    return f'{{"id":"{record_id}"}}'.encode()


async def test_many_writers_make_one_history(bus: Bus) -> None:
    """Each decides anew from what it reads: every record is stored once, in one order."""
    subject = subjects.log("default", new_id())
    reader = await bus.reader("RUNS")

    async def writer(name: str) -> None:
        seen, left = 0, 5
        while left:
            try:
                seen = await write(bus, subject, f"{name}-{left}", seen)
                left -= 1
            except Outdated:
                seen = (await reader.read(subject))[-1][0]

    await asyncio.gather(*(writer(f"w{n}") for n in range(6)))
    stored = await reader.read(subject)
    assert len(stored) == 30
    assert len({data for _, data in stored}) == 30


async def test_a_write_outlives_the_server(bus: Bus, own_nats_server: NatsServer) -> None:
    """It is stored exactly once, however long the server is unavailable."""
    subject = subjects.log("default", new_id())
    first = await write(bus, subject, "a", 0)
    own_nats_server.kill()
    writing = asyncio.create_task(write(bus, subject, "b", first))
    await asyncio.sleep(0.3)
    own_nats_server.start()
    sequence = await asyncio.wait_for(writing, 20)
    stored = await (await bus.reader("RUNS")).read(subject)
    assert stored == [(first, record("a")), (sequence, record("b"))]


class LostAnswers:
    """Loses the answers of the next writes of a connection. The server stores the first `stored` of them."""

    def __init__(self, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
        self._publish = bus.publish
        self.left = self.stored = 0
        self.tries = 0
        monkeypatch.setattr(bus, "publish", self)

    async def __call__(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        """Publish; raise Unsure when the answer is to be lost."""
        self.tries += 1
        if self.left <= 0:
            return await self._publish(subject, data, headers)
        self.left -= 1
        if self.stored > 0:
            self.stored -= 1
            with contextlib.suppress(Refused):
                await self._publish(subject, data, headers)
        raise Unsure("the answer was lost")


@pytest.mark.parametrize("guard_of", ["own", "other"])
@pytest.mark.parametrize(("lost", "stored", "tries"), [(1, 1, 1), (1, 0, 2), (3, 0, 4)])
async def test_lost_answers_are_settled_by_reading_back(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, guard_of: str, lost: int, stored: int, tries: int
) -> None:
    """What was stored is not written again, what was not is; the guard may be of the subject or of another one."""
    run = new_id()
    log, stream = subjects.log("default", run), subjects.stream("default", run)
    tail = await write(bus, log, "a", 0)
    subject = log if guard_of == "own" else stream
    answers = LostAnswers(bus, monkeypatch)
    answers.left, answers.stored = lost, stored
    sequence = await guarded_write.write(bus, subject, record("b"), Guard(log, tail), since=tail)
    assert answers.tries == tries
    assert (await (await bus.reader("RUNS")).read(subject))[-1] == (sequence, record("b"))
    assert len(await (await bus.reader("RUNS")).read(subject)) == (2 if guard_of == "own" else 1)


async def test_attempts_are_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the caller gets the error of the last attempt."""
    subject = subjects.log("default", new_id())
    answers = LostAnswers(bus, monkeypatch)
    answers.left = 10
    with pytest.raises(Unsure):
        await guarded_write.write(bus, subject, record("a"), Guard(subject, 0), attempts=2)
    assert answers.tries == 2
