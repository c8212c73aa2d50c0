"""A run until its turn in its session has come: what its log says, in any order of messages."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs import inbox
from contracts.runs.inbox import RunBegins, RunMerged, RunRefused, RunYields
from contracts.runs.requests import RunRequested
from contracts.wire.faults import Fault
from services.planner.run.commands import Ack, Command, Enter, Incoming, Opening, Progress, Received, Resolve, SetTimer
from services.planner.run.opening import opened
from services.planner.run.state.run import Begun, Busy, Place, Waiting
from services.planner.run.turn.decision import Decision
from tests.planner.handlings import Attempt
from tests.planner.run_world import RUN, World, final, started

FAULT = Fault(code="session_busy", reason="another run has the turn")
REQUEST = RunRequested(
    run_id=RUN, tenant="default", requested_at=1000, trace_id="t" * 32, query="what?", session_id="s", queue_timeout_s=5
)


def handling(message: Received, owner: str = "REQUESTS:1", now: int = 2000) -> Attempt:
    return Attempt(Incoming(owner, f"{owner}-{now}", message), Progress(now))


class Queue(World):
    """A run that waits for its turn, and then answers."""

    places: Sequence[Place] = ()

    def enter(self, attempt: Attempt, *places: Place) -> list[Command]:
        """Handle a message to which the session answers these, one after another; the last one stays."""
        self.places = places
        return self.handle(attempt)

    def next_reply(self, _: list[Decision]) -> Decision:
        return final()

    def carry_out(self, handling: Attempt, command: Command) -> None:
        match command:
            case Enter():
                handling.place, *left = self.places
                self.places = left or self.places
            case Resolve():
                place = handling.place or Begun(9)
                fact = started().model_copy(update={"request": REQUEST})
                handling.opening = Opening(opened(fact, self.run, place, handling.now))
            case _:
                handling.carry_out(command)


def kinds(moves: Sequence[object]) -> list[str]:
    return [type(move).__name__ for move in moves]


def test_a_run_that_has_the_turn_begins_at_once() -> None:
    """Its log names the record of the session."""
    world = Queue()
    moves = world.enter(handling(REQUEST), Begun(7))
    assert moves[0] == Enter(is_queued=False)
    assert world.types() == ["run_started", "asked", "step", "step", "done"]
    assert world.run.started is not None
    assert world.run.started.conversation_seq == 7
    assert world.run.started.deadline_at == 61_000


def test_a_run_that_must_wait_says_so_before_it_joins() -> None:
    """Its context is stored first, its timer is set, and its entry in the index is written."""
    world = Queue()
    moves = world.enter(handling(REQUEST.model_copy(update={"tool_context": {"token": "t"}})), Busy(), Waiting())
    assert kinds(moves) == ["Enter", "KeepContext", "Append", "SetTimer", "Enter", "Open", "Ack"]
    assert moves[3] == SetTimer("queue", 6000)
    assert world.types() == ["queued"]
    assert world.run.is_at_rest
    assert world.handle(handling(RunBegins(session_seq=9), "INBOX:4", now=50_000))[-1] == Ack()
    assert world.types() == ["queued", "run_started", "asked", "step", "step", "done"]
    assert world.run.started is not None
    assert (world.run.started.conversation_seq, world.run.started.has_tool_context) == (9, True)
    assert world.run.started.deadline_at == 50_000 + 600_000


@pytest.mark.parametrize("says_so_first", [False, True])
def test_a_turn_that_was_given_away_before_it_was_used(*, says_so_first: bool) -> None:
    """Whoever was stopped with it, or is late with its message, starts nothing: the run begins with its next turn."""
    world, stopped = Queue(), handling(REQUEST)
    if says_so_first:
        world.enter(handling(REQUEST), Busy(), Waiting())
        stopped = handling(RunBegins(session_seq=5), "INBOX:1")
    stopped.place = Begun(5)
    stopped.opening = Opening(started().model_copy(update={"conversation_seq": 5}))
    assert world.handle(handling(RunYields(session_seq=7), "INBOX:2"))[-1] == Ack()
    assert world.handle(handling(RunYields(session_seq=7), "INBOX:3")) == [Ack()]
    assert world.types() == [*(["queued"] if says_so_first else []), "yielded"]
    moves = world.enter(stopped, Busy(), Waiting())
    assert (kinds(moves)[-1], world.run.started) == ("Ack", None)
    assert sorted(world.types()) == ["queued", "yielded"]
    assert world.handle(handling(RunBegins(session_seq=5), "INBOX:4")) == [Ack()]
    world.handle(handling(RunBegins(session_seq=9), "INBOX:5"))
    assert world.types()[2:] == ["run_started", "asked", "step", "step", "done"]
    assert world.run.started is not None
    assert (world.run.started.conversation_seq, world.run.yields) == (9, False)


def test_its_next_turn_may_come_before_its_log_says_that_it_waits() -> None:
    """It learns of that as it joins, and begins with what was said until then."""
    world, stopped = Queue(), handling(REQUEST)
    stopped.place = Begun(5)
    world.handle(handling(RunYields(session_seq=7), "INBOX:2"))
    assert world.handle(handling(RunBegins(session_seq=9), "INBOX:3")) == [Ack()]
    world.enter(stopped, Busy(), Begun(9))
    assert world.types()[:3] == ["yielded", "queued", "run_started"]
    assert world.run.started is not None
    assert world.run.started.conversation_seq == 9


@pytest.mark.parametrize(
    ("message", "end"),
    [(RunMerged(into="b" * 32), "done"), (RunRefused(fault=FAULT), "error"), (inbox.CancelRequested(), "cancelled")],
)
def test_a_queued_run_ends_without_a_turn(message: Received, end: str) -> None:
    """Merged into another one, refused, or cancelled."""
    world = Queue()
    world.enter(handling(REQUEST), Busy(), Waiting())
    assert kinds(world.handle(handling(message, "INBOX:5")))[-2:] == ["Close", "Ack"]
    is_merged = isinstance(message, RunMerged)
    assert world.types() == ["queued", *(["chunk"] if is_merged else []), end]
    if is_merged:
        payload = world.run.terminal
        assert payload is not None
        assert payload.type == "done"
        assert (payload.route, payload.extra) == ("merged", {"run_id": "b" * 32})
        assert payload.raw_answer.endswith(f"run {'b' * 32}.")


def test_a_run_that_the_session_has_had_ends_at_once() -> None:
    """Its log was deleted, and then it was requested again."""
    world = Queue()
    moves = world.enter(handling(REQUEST), Waiting())
    assert kinds(moves) == ["Enter", "Append", "Close", "Ack"]
    assert world.types() == ["error"]


MESSAGES: dict[str, Received] = {
    "begin": RunBegins(session_seq=9),
    "merged": RunMerged(into="b" * 32),
    "refused": RunRefused(fault=FAULT),
    "cancel": inbox.CancelRequested(),
    "timer": inbox.TimerFired(timer="queue", at=6000),
    "attach": inbox.SessionAttached(session_id="run-" + RUN),
    "yields": RunYields(session_seq=6),
}


@given(st.lists(st.sampled_from(["request", *MESSAGES]), max_size=12), st.booleans())
def test_a_run_begins_once_and_ends_once(kinds_of: list[str], has_turn: bool) -> None:  # noqa: FBT001, drawn
    """Whatever is delivered, how often, and in which order."""
    world = Queue()
    for number, kind in enumerate(kinds_of):
        if kind == "request":
            world.enter(handling(REQUEST), *([Begun(7)] if has_turn else [Busy(), Waiting()]))
        else:
            world.handle(handling(MESSAGES[kind], f"INBOX:{number}"))
    types = world.types()
    assert types.count("queued") <= 1
    assert types.count("run_started") <= 1
    assert sum(types.count(end) for end in ("done", "error", "cancelled")) <= 1
    if "queued" in types and "run_started" in types:
        assert types.index("queued") < types.index("run_started")
    if has_turn and "request" in kinds_of and "cancel" not in kinds_of:
        assert "run_started" in types
