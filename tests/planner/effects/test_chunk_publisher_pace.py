"""When chunks may leave: at once in a quiet process, in turns in a busy one."""

from collections.abc import Callable

from services.planner.effects.chunk_publisher import MAX_IN_FLIGHT, ChunkPace


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
