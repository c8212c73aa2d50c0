"""Which calls are made directly, and how their outcomes are recorded."""

from dataclasses import replace

from contracts.runs.events import Observed, PlannedCall
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.records import Record
from services.planner.run.calls.starting import DirectRules
from services.planner.run.commands import Ack, Ask, Close, Dispatch
from tests.planner.run_world import World, calls, final, finished, started

DIRECT = DirectRules("a" * 32, slow=frozenset({"slow"}))


def directly() -> World:
    """A world in which calls are made directly."""
    world = World()
    world.rules = replace(world.rules, direct=DIRECT)
    return world


def marks(sent: list[PlannedCall]) -> dict[str, str | None]:
    """Which calls name an instance."""
    return {call.call_id: call.direct for call in sent}


def test_the_record_of_a_call_names_the_instance() -> None:
    """Not where the tool is slow; and a call that waits for a place is marked once it gets one."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started(max_parallel=2))
    decision = replace(calls(), calls=(("work", {}), ("slow", {}), ("work", {})))
    moves = world.play(handling, decision)
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert marks(dispatch.calls) == {"1-1": DIRECT.instance, "1-2": None}
    assert marks([world.run.open["1-3"]]) == {"1-3": None}
    moves = world.play(world.handling("INBOX:1", finished("1-2")))
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert marks(dispatch.calls) == {"1-3": DIRECT.instance}


def test_outcomes_that_came_together_are_one_record() -> None:
    """With what follows from them: the handling goes on to the end of the run."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started())
    handling.carry_out(world.handle(handling, calls(2), until=Dispatch)[-1])
    handling.outcomes = (finished("1-1"), finished("1-2"))
    moves = world.play(handling, final("42"))
    assert [event.type for event in world.written[2]] == ["observed", "observed", "step", "asked"]
    assert handling.outcomes == ()
    assert [type(move) for move in moves] == [Ask, Close, Ack]


def test_outcomes_that_are_too_long_for_one_record_are_several() -> None:
    """None of them is shortened for it."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling, replace(calls(), calls=(("work", {}),) * 8))
    again = world.handling("INBOX:1", "resumed")
    again.outcomes = tuple(finished(f"1-{n}", artifacts={"chart": "x" * 128_000}) for n in range(1, 9))
    world.play(again)
    records = [[event for event in events if isinstance(event, Observed)] for events in world.written]
    assert [len(observed) for observed in records if observed] == [4, 4]
    assert all(len(Record(events=[*events]).model_dump_json()) <= MAX_RECORD_BYTES for events in world.written)


def test_another_handling_takes_a_direct_call_for_one_that_may_have_begun() -> None:
    """The record is the intent of the call."""
    world = directly()
    world.play(world.handling("REQUESTS:1", started=started()), calls())
    moves = world.play(world.handling("REQUESTS:1", holder="second", started=started()))
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert dispatch.again == {"1-1"}
    assert marks(dispatch.calls) == {"1-1": DIRECT.instance}
