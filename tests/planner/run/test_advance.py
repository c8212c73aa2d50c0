"""The rules of a run, without a server: one message at a time, then thousands of interleavings with crashes."""

from dataclasses import replace

import pytest

from contracts.runs.decisions import Join
from contracts.runs.events import Cancelled, Done
from contracts.runs.inbox import TimerFired
from contracts.runs.payload import Usage
from services.planner.run.commands import (
    Abandon,
    Ack,
    Append,
    Ask,
    Close,
    Dispatch,
    LoadSpecs,
    Open,
    ReadShown,
    Resolve,
)
from services.planner.run.state.fold import fold
from services.planner.run.turn.decision import Calls
from tests.planner.handlings import advance
from tests.planner.run_world import World, calls, final, finished, started


def test_a_run_with_one_tool_call() -> None:
    """Request, decision, call, outcome, answer: five records, one terminal fact."""
    world = World()
    moves = world.play(world.handling("REQUESTS:1", started=started()), calls())
    assert [type(move) for move in moves] == [Ask, Dispatch, Open, Ack]
    moves = world.play(world.handling("INBOX:1", "call_finished", finished=finished("1-1")), final("42"))
    assert [type(move) for move in moves] == [Ask, Close, Ack]
    assert world.types() == ["run_started", "asked", "step", "observed", "step", "asked", "step", "step", "done"]
    done = world.run.terminal
    assert isinstance(done, Done)
    assert (done.raw_answer, done.reason) == ("42", "answer_complete")
    assert done.usage == Usage(model_calls=2, tool_calls=1, prompt_tokens=10, cost_usd=1.0)


def test_another_message_leaves_a_model_call_alone() -> None:
    """Only the message that owns the call may call the model again: any other appends its own fact and acknowledges."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started()))  # Dies while the model thinks.
    assert [type(m) for m in world.play(world.handling("INBOX:7", "call_finished", finished=finished("9-9")))] == [Ack]
    again = world.handling("REQUESTS:1", holder="second", started=started())
    moves = world.play(again, final())
    assert [type(move) for move in moves] == [ReadShown, Ask, Close, Ack]
    asked = [event for events in world.written for event in events if event.type == "asked"]
    assert [(a.turn, a.attempt, a.cause) for a in asked] == [(1, 1, "turn"), (1, 2, "lost")]


def test_a_superseded_handling_writes_nothing_more() -> None:
    """The first handling goes on after a second one has called the model again: it neither writes nor acknowledges."""
    world = World()
    first = world.handling("REQUESTS:1", holder="first", started=started())
    world.play(first)
    second = world.handling("REQUESTS:1", holder="second", started=started())
    world.play(second)
    first.decision = final("late")
    before = len(world.written)
    assert isinstance(advance(world.run, first, world.rules), Abandon)
    assert len(world.written) == before


def test_an_answer_survives_another_fact_that_moved_the_tail() -> None:
    """A reply stays valid as long as the newest attempt token in the log is its own."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling)
    handling.decision = final("kept")
    fold(world.run, 99, 0, [])
    assert isinstance(advance(world.run, handling, world.rules), Append)


def test_cancel_ends_a_run_wherever_it_is() -> None:
    """Before it began, while the model thinks, while calls are open; afterwards it changes nothing."""
    for prepare in (
        lambda _: None,
        lambda w: w.play(w.handling("REQUESTS:1", started=started())),
        lambda w: w.play(w.handling("REQUESTS:1", started=started()), calls()),
    ):
        world = World()
        prepare(world)
        world.play(world.handling("INBOX:1", "cancel", reason="enough"))
        assert isinstance(world.run.terminal, Cancelled)
        length = len(world.written)
        world.play(world.handling("INBOX:2", "cancel"))
        world.play(world.handling("REQUESTS:1", holder="x", started=started()), final())
        world.play(world.handling("INBOX:3", "call_finished", finished=finished("1-1")))
        assert len(world.written) == length


def test_a_cancel_stops_the_model_before_it_reads_what_was_shown() -> None:
    """Else more could be shown in between. A redelivery of the cancel finishes it; other messages do nothing."""
    world = World()
    asking = world.handling("REQUESTS:1", started=started())
    world.play(asking)
    dying = world.handling("INBOX:1", "cancel", reason="enough")
    command = advance(world.run, dying, world.rules)
    assert isinstance(command, Append)
    world.write(dying, command.events)
    assert (world.run.terminal, world.run.asked) == (None, None)
    asking.decision = final("late")
    for other in (
        asking,
        world.handling("INBOX:2", "call_finished", finished=finished("9-9")),
        world.handling("INBOX:3", "top_up", top_up_id="w"),
    ):
        assert [type(move) for move in world.play(other)] == [Ack]
    moves = world.play(world.handling("INBOX:1", "cancel", holder="again", reason="enough"))
    assert [type(move) for move in moves] == [ReadShown, Close, Ack]
    assert world.types() == ["run_started", "asked", "stopping", "cancelled"]
    end = world.run.terminal
    assert isinstance(end, Cancelled)
    assert (end.reason, end.payload.raw_answer) == ("enough", "seen")


def test_a_deadline_ends_a_run_with_what_there_is() -> None:
    """The payload holds the last observation, the route is partial, a warning names the budget."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started(deadline_s=60)), calls())
    world.play(world.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    world.play(world.handling("INBOX:2", "timer", timer=TimerFired(timer="deadline", at=61_000)))
    done = world.run.terminal
    assert isinstance(done, Done)
    assert (done.reason, done.route, done.raw_answer) == ("budget_exhausted", "partial", "41")
    assert any("deadline_s of 60" in warning for warning in done.warnings)


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
    world.play(world.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    done = world.run.terminal
    assert isinstance(done, Done)
    assert done.raw_answer == "41"
    assert any(budget in warning for warning in done.warnings)


def test_calls_beyond_max_parallel_wait_for_a_place() -> None:
    """Of five calls two run at once; each outcome lets the next one start."""
    world = World()
    moves = world.play(world.handling("REQUESTS:1", started=started(max_parallel=2)), calls(5))
    sent = [call.call_id for move in moves if isinstance(move, Dispatch) for call in move.calls]
    assert sent == ["1-1", "1-2"]
    for n in range(1, 6):
        moves = world.play(world.handling(f"INBOX:{n}", "call_finished", finished=finished(sent[n - 1])))
        sent += [call.call_id for move in moves if isinstance(move, Dispatch) for call in move.calls]
    assert sent == ["1-1", "1-2", "1-3", "1-4", "1-5"]
    assert world.run.asked is not None


def test_what_a_handling_needs_is_loaded_by_commands() -> None:
    """A request is resolved before it is used; specifications are loaded for a join."""
    world = World()
    request = world.handling("REQUESTS:1", started=started())
    request.opening = None
    assert advance(world.run, request, world.rules) == Resolve()
    world.play(world.handling("REQUESTS:1", started=started()), replace(calls(1), join=Join(node="merge")))
    outcome = world.handling("INBOX:1", "call_finished", finished=finished("1-1"), specs=None)
    assert advance(world.run, outcome, world.rules) == LoadSpecs()
    outcome.specs = {}
    assert isinstance(advance(world.run, outcome, world.rules), Append)
