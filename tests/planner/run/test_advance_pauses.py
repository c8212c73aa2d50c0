"""Top-ups of runs, without a server; then thousands of interleavings of all that a run does."""

from collections import Counter

import pytest

from contracts.runs.events import Error, Observed
from contracts.runs.inbox import TimerFired, TopUpRequested
from contracts.wire.faults import Fault
from services.planner.run.advance import MAX_LOST
from services.planner.run.turn.decision import Decision, Failed, Final, Invalid
from tests.planner.run_world import Storm, World, calls, final, started
from tests.support.samples import seeds


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
