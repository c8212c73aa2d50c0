"""Chunks over a real NATS server: as bytes, in turns, under lag, at a reply's end, in a process that lost its call."""

from collections.abc import Callable

import pytest

from contracts.runs.events import Asked, Chunk, Thinking
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.planner.effects.chunk_publisher import MAX_IN_FLIGHT, ChunkPace, ChunkPublisher, ChunkWriter
from services.planner.logs.ownership_watch import Address

ASKED = Asked(turn=2, attempt=3, by="REQUESTS:1", holder="h")


class Reply:
    """One reply that is streamed, and what is stored of it."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.where = bus, Address("default", new_id())

        async def newest() -> int:
            return 0

        self.publisher = ChunkPublisher(ChunkWriter(bus), self.where, ASKED, 0, newest)

    async def stored(self) -> list[tuple[int, bytes]]:
        """Sequence and body of every chunk."""
        return await (await self.bus.reader(subjects.RUNS)).read(subjects.stream(*self.where), 1)

    async def events(self) -> list[Chunk | Thinking]:
        records = [Record.model_validate_json(data) for _, data in await self.stored()]
        return [event for record in records for event in record.events if isinstance(event, Chunk | Thinking)]


@pytest.mark.parametrize(
    "text", ["", "plain", 'quo"te\\ and / slash', "\n\r\t\x00\x1f\x7f\u2028", "é€😀", "x" * 200_000]
)
@pytest.mark.parametrize("channel", ["answer", "thinking"])
async def test_a_record_has_the_bytes_of_its_model(bus: Bus, text: str, channel: str) -> None:
    """It is built without the model, for speed."""
    reply = Reply(bus)
    reply.publisher.say(channel, text, done=True)  # type: ignore[arg-type]
    await reply.publisher.drained()
    stored = await reply.stored()
    assert [Record.model_validate_json(data).model_dump_json().encode() for _, data in stored] == [
        data for _, data in stored
    ]
    assert "".join(event.text for event in await reply.events()) == text
    assert {event.type for event in await reply.events()} == {"chunk" if channel == "answer" else "thinking"}


async def test_a_quiet_reply_is_stored_token_by_token(bus: Bus) -> None:
    """Each token leaves at once; what is said in one step of the event loop is one chunk."""
    reply = Reply(bus)
    for number in range(5):
        reply.publisher.say("answer", f"{number}")
        reply.publisher.say("answer", ",")
        await reply.publisher.drained()
    assert [event.text for event in await reply.events()] == ["0,", "1,", "2,", "3,", "4,"]
    assert [event.seq for event in await reply.events()] == list(range(5))
    assert reply.publisher.stream_seq == (await reply.stored())[-1][0]


class World:
    """A pace with a clock of its own, and the writes that it has begun."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun: list[str] = []
        self.pace = ChunkPace(lambda: self.now)

    def enter(self, name: str, *, is_first: bool = False) -> None:
        """A write that begins as soon as it may."""
        self.pace.enter(name, self._begin(name), is_first=is_first)

    def _begin(self, name: str) -> Callable[[], bool]:
        def begin() -> bool:
            self.begun.append(name)
            return True

        return begin


def test_few_writes_are_in_flight_and_the_others_wait_in_order() -> None:
    """The first chunk of a reply goes before the others."""
    world = World()
    for number in range(MAX_IN_FLIGHT):
        world.enter(f"in flight {number}")
    world.begun.clear()
    world.enter("a")
    world.enter("b")
    world.enter("first", is_first=True)
    world.enter("second", is_first=True)
    assert world.begun == []
    for number in range(4):
        world.pace.leave(f"in flight {number}")
    assert world.begun == ["first", "second", "a", "b"]


def test_a_write_that_has_nothing_to_store_any_more_keeps_no_place() -> None:
    """Its reply was superseded, or its text is stored with the decision."""
    world = World()
    for number in range(MAX_IN_FLIGHT + 1):
        world.pace.enter(number, lambda: False, is_first=False)
    world.enter("a")
    assert world.begun == ["a"]
