"""What the rules of a run keep, without a server: one message at a time, then thousands of interleavings."""

from collections import Counter

import pytest

from contracts.runs.events import Cancelled, Done, Error, Observed
from contracts.runs.inbox import CancelRequested, TimerFired, TopUpRequested
from contracts.runs.payload import Usage
from contracts.wire.faults import Fault
from services.planner.run.advance import MAX_LOST
from services.planner.run.commands import Abandon, Ack, Append, Ask, Close, Dispatch, Open, ReadShown
from services.planner.run.state.fold import fold
from services.planner.run.turn.decision import Calls, Decision, Failed, Final, Invalid
from tests.planner.handlings import advance
from tests.planner.run_world import Storm, World, calls, final, finished, started
from tests.support.samples import seeds


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


def test_a_top_up_counts_once() -> None:
    """However often its message comes."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started(max_steps=2)))
    more = TopUpRequested(id="a", limits={"max_steps": 3, "max_tokens": 10, "max_parallel": 2})
    for _ in range(3):
        world.play(world.handling("INBOX:50", more))
    assert (world.run.limits.max_steps, world.run.limits.max_tokens, world.run.limits.max_parallel) == (4, 10, 2)
    assert world.types().count("topped_up") == 1


class Interleaving(Storm):
    """Calls, repairs, failures and restated answers; somebody tops the run up while it waits, and timers go off."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, started(max_parallel=2, max_steps=2, grace_s=10, max_tool_calls=4))
        self.timers: set[TimerFired] = set()
        self.tops = 0

    def reply(self, turn: int) -> Decision:
        final_ = final() if self.rng.random() < 0.5 else Final(args={"answer": "x"}, restate=True)
        odd: list[Decision] = [
            Invalid(complaint="no", reply=""),
            Failed(fault=Fault(code="model_failed", reason="503", retryable=True)),
            Failed(fault=Fault(code="model_rate_limited", reason="429", retryable=True), retry_after_s=10),
        ]
        if self.rng.random() < 0.2:
            return self.rng.choice(odd)
        return final_ if turn > 4 else calls(self.rng.randint(1, 2))

    def set_timer(self, timer: TimerFired) -> None:
        self.timers.add(timer)

    def outside(self) -> None:
        if self.world.run.paused is not None and self.rng.random() < 0.2:
            self.tops += 1
            more = TopUpRequested(id=f"{self.tops}", limits={"max_steps": 2, "max_tool_calls": 3})
            self.deliver(f"CONTROL:{self.tops}", more)
        if self.rng.random() < 0.002:
            self.deliver("INBOX:deadline", TimerFired(timer="deadline", at=61_000))
        for timer in [*self.timers]:
            if timer.timer == "pause" and self.rng.random() < 0.002:
                self.deliver(f"INBOX:pause-{timer.at}", timer)
            if timer.timer == "retry" and self.rng.random() < 0.05:
                self.timers.discard(timer)
                # The planner's clock may be behind that of NATS, which fires a timer once.
                self.deliver(f"INBOX:retry-{timer.at}", timer, now=(timer.at or 0) - self.rng.choice([0, 0, 5000]))


@pytest.mark.sample(25)
@pytest.mark.parametrize("seed", seeds(300))
def test_every_interleaving_ends_once(seed: int) -> None:
    """With pauses, top-ups, failures, repairs, restated answers: one end, each call settled once, no attempt twice."""
    storm = Interleaving(seed)
    storm.play()
    types, end = Counter(storm.world.types()), storm.world.run.terminal
    assert types["done"] + types["error"] == 1
    if isinstance(end, Error):
        assert end.code in {"too_many_attempts", "model_failed", "model_rate_limited"}
        assert storm.world.run.lost >= MAX_LOST or end.code != "too_many_attempts"
    observed = Counter(event.call_id for event in storm.world.of(Observed))
    assert max(observed.values(), default=0) <= 1
    assert max(storm.asked.values()) == 1
