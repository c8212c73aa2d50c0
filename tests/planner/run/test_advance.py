"""What the rules of a run keep, one message at a time, without a server. `moves.py` says what each message may do."""

import pytest

from contracts.runs.events import Cancelled, Done
from contracts.runs.inbox import CancelRequested
from contracts.runs.payload import Usage
from services.planner.run.commands import Abandon, Ack, Append, Ask, Close, Dispatch, Open, ReadShown
from services.planner.run.state.fold import fold
from services.planner.run.turn.decision import Calls
from tests.planner.handlings import advance
from tests.planner.run_world import World, calls, final, finished, started


def test_a_run_with_one_tool_call() -> None:
    """Request, decision, call, outcome, answer: five records, one terminal fact."""
    world = World()
    moves = world.play(world.handling("REQUESTS:1", started=started()), calls())
    assert [type(move) for move in moves] == [Ask, Dispatch, Open, Ack]
    moves = world.play(world.handling("INBOX:1", finished("1-1")), final("42"))
    assert [type(move) for move in moves] == [Ask, Close, Ack]
    assert world.types() == ["run_started", "asked", "step", "observed", "step", "asked", "step", "step", "done"]
    done = world.run.terminal
    assert isinstance(done, Done)
    assert (done.raw_answer, done.reason) == ("42", "answer_complete")
    assert done.usage == Usage(model_calls=2, tool_calls=1, prompt_tokens=10, cost_usd=1.0)


def test_a_superseded_handling_writes_nothing_more() -> None:
    """The first handling goes on after a second one has called the model again: it neither writes nor acknowledges."""
    world = World()
    first = world.handling("REQUESTS:1", holder="first", started=started())
    world.play(first)
    world.play(world.handling("REQUESTS:1", holder="second", started=started()))
    first.decision = final("late")
    assert world.handle(first) == [Abandon()]


def test_an_answer_survives_another_fact_that_moved_the_tail() -> None:
    """A reply stays valid as long as the newest attempt token in the log is its own."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling)
    handling.decision = final("kept")
    fold(world.run, 99, 0, [])
    assert isinstance(advance(world.run, handling, world.rules), Append)


def test_a_cancel_stops_the_model_before_it_reads_what_was_shown() -> None:
    """Else more could be shown in between. A redelivery of the cancel finishes it; other messages do nothing."""
    world = World()
    asking = world.handling("REQUESTS:1", started=started())
    world.play(asking)
    world.handle(world.handling("INBOX:1", CancelRequested(reason="enough")), until=ReadShown)
    assert (world.run.terminal, world.run.asked) == (None, None)
    asking.decision = final("late")
    for other in (asking, world.handling("INBOX:2", finished("9-9")), world.handling("INBOX:3", "top_up")):
        assert world.handle(other) == [Ack()]
    moves = world.play(world.handling("INBOX:1", CancelRequested(reason="enough"), "again"))
    assert [type(move) for move in moves] == [ReadShown, Close, Ack]
    assert world.types() == ["run_started", "asked", "stopping", "cancelled"]
    end = world.run.terminal
    assert isinstance(end, Cancelled)
    assert (end.reason, end.payload.raw_answer) == ("enough", "seen")


@pytest.mark.parametrize(
    ("limits", "budget"),
    [
        ({"max_steps": 1}, "max_steps of 1"),
        ({"max_tokens": 10}, "max_tokens of 10"),
        ({"max_cost_usd": 0.5}, "max_cost_usd of 0.5"),
    ],
)
def test_a_budget_is_checked_before_it_is_spent(limits: dict[str, object], budget: str) -> None:
    """What ran out is named; the last outcome is in the payload."""
    world = World()
    spend = Calls(node="work", calls=(("work", {}),), usage=Usage(model_calls=1, prompt_tokens=10, cost_usd=0.5))
    world.play(world.handling("REQUESTS:1", started=started(**limits)), spend)
    world.play(world.handling("INBOX:1", finished("1-1")))
    done = world.run.terminal
    assert isinstance(done, Done)
    assert done.raw_answer == "41"
    assert any(budget in warning for warning in done.warnings)
