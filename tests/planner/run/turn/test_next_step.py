"""When a run asks its strategy what follows, and is compacted; two handlings of one message: the later takes over."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from contracts.runs.events import Asked, Called, Observed
from services.planner.run.commands import Ack, Ask, Dispatch, Handling, Rules, StrategyRules
from services.planner.run.state.history import Length
from services.planner.run.state.run import Event, Run
from services.planner.run.turn import next_step
from tests.planner.handlings import Attempt
from tests.planner.run.calls.test_starting import directly
from tests.planner.run_world import World, calls, final, finished, started


@dataclass
class Noting(StrategyRules):
    """A strategy that asks the model each time, and notes the turn and its outcomes so far."""

    seen: list[tuple[int, int]] = field(default_factory=list)

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        del observed
        self.seen.append((run.turn, len(run.observed)))
        return next_step.ask_next(run, handling, rules)


def world(strategy: Noting) -> World:
    return World(Rules(strategy=strategy))


def test_at_the_opening_and_after_each_step() -> None:
    """With nothing in flight; not while calls of a step are open."""
    strategy = Noting()
    played = world(strategy)
    played.play(played.handling("REQUESTS:1", started=started()), calls(2))
    assert strategy.seen == [(0, 0)]
    played.play(played.handling("INBOX:1", finished("1-1")))
    assert strategy.seen == [(0, 0)]
    played.play(played.handling("INBOX:2", finished("1-2")), final())
    assert strategy.seen == [(0, 0), (1, 1)]
    assert played.types()[-1] == "done"


def made(world: World, count: int = 1) -> Attempt:
    """The first handling, which has made direct calls and waits for their outcomes."""
    first = world.handling("REQUESTS:1", started=started())
    first.carry_out(world.handle(first, calls(count), until=Dispatch)[-1])
    world.rules = replace(world.rules, direct=None)  # Only the handling of a first delivery makes direct calls.
    return first


def again(world: World, holder: str = "second") -> Attempt:
    return world.handling("REQUESTS:1", holder=holder, started=started())


def test_calls_are_announced_again_before_the_message_is_acknowledged() -> None:
    """As calls that are not direct. A third handling sends them once more, and announces nothing."""
    world = directly()
    made(world, 2)
    moves = world.play(again(world))
    assert [type(move) for move in moves if not isinstance(move, Dispatch)][-1] is Ack
    [called] = world.written[-1]
    assert isinstance(called, Called)
    assert [(call.call_id, call.direct) for call in called.calls] == [("1-1", None), ("1-2", None)]
    assert world.run.usage.tool_calls == 2, "they were counted with their step"
    records = len(world.written)
    [dispatch] = [move for move in world.play(again(world, "third")) if isinstance(move, Dispatch)]
    assert dispatch.again == {"1-1", "1-2"}
    assert len(world.written) == records


def test_the_earlier_handling_drops_the_outcome() -> None:
    """If it died, nobody would go on. The outcome that comes through INBOX leads to the next request."""
    world = directly()
    first = made(world)
    world.play(again(world))
    records = len(world.written)
    first.outcomes = (finished("1-1"),)
    moves = world.play(first)
    assert isinstance(moves[-1], Ack)
    assert len(world.written) == records
    moves = world.play(world.handling("INBOX:1", finished("1-1")), final("42"))
    assert isinstance(moves[0], Ask)
    asked = world.of(Asked)[-1]
    assert (asked.turn, asked.by) == (2, "INBOX:1")


def test_the_later_handling_finds_that_the_earlier_one_went_on() -> None:
    """It has nothing to take over, and makes the next attempt, which its message owns."""
    world = directly()
    first = made(world)
    second = again(world)
    second.carry_out(world.handle(second, until=Dispatch)[-1])
    first.outcomes = (finished("1-1"),)
    world.handle(first, until=Ask)
    moves = world.play(second, final("42"))
    assert isinstance(moves[1], Ask)
    asked = world.of(Asked)[-1]
    assert (asked.turn, asked.attempt, asked.cause) == (2, 2, "lost")
    assert world.of(Called) == []


@pytest.mark.parametrize("compacted", [True, False])
def test_a_long_conversation_is_compacted(*, compacted: bool) -> None:
    """Before the model is asked, not after it has refused the request; at the limit it is not compacted yet."""

    class Long(Noting):
        def length(self, run: Run) -> Length:
            del run
            return Length(characters=400_000 + compacted, messages=10)

    played = world(Long())
    played.play(played.handling("REQUESTS:1", started=started()))
    assert ("compacted" in played.types()) is compacted
