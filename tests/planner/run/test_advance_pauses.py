"""The rules of pauses, top-ups and restated answers, without a server; then thousands of interleavings."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Asked, Done, Error
from contracts.runs.inbox import TimerFired
from contracts.wire.faults import Fault
from services.planner.run.advance import MAX_LOST
from services.planner.run.commands import (
    Abandon,
    Ack,
    Append,
    Ask,
    Dispatch,
    Say,
    SetTimer,
    Wake,
)
from services.planner.run.turn.decision import Decision, Failed, Final, Invalid
from tests.planner.handlings import Attempt, advance, later_token
from tests.planner.run_world import World, calls, final, finished, started
from tests.support.samples import seeds

NOW = 2000


def asked_to(world: World, *replies: Decision, **limits: object) -> None:
    """Open a run with these limits, and let the model say these."""
    world.play(world.handling("REQUESTS:1", started=started(**limits)), *replies)


def top_up(world: World, owner: str = "INBOX:50", **limits: object) -> list[object]:
    """Let the run spend more; returns the moves."""
    return carry_out(world, world.handling(owner, "top_up", limits=limits, top_up_id=owner))


def carry_out(world: World, handling: Attempt) -> list[object]:
    """Handle a message whose effects are timers and wake-ups."""
    moves: list[object] = []
    while True:
        command = advance(world.run, handling, world.rules)
        match command:
            case Append(events):
                world.write(handling, events)
                continue
            case _:
                handling.carry_out(command)
        moves.append(command)
        if isinstance(command, Ack | Abandon | Ask | Dispatch):
            return moves


def test_a_pause_is_timed_and_topped_up() -> None:
    """A pause sets a timer for the end; a top-up wakes the consumer that calls models, and calls none itself."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started(max_steps=1, grace_s=5))
    world.play(handling, calls())
    moves = carry_out(world, world.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    assert world.run.paused is not None
    assert moves == [SetTimer("pause", NOW + 5000), Ack()]
    assert top_up(world, max_steps=3) == [SetTimer("deadline", 61_000), Wake(), Ack()]
    assert world.run.limits.max_steps == 4
    assert world.types()[-1] == "resumed"
    assert isinstance(carry_out(world, world.handling("INBOX:51", "resumed"))[-1], Ask)
    assert world.run.turn == 2


def test_a_top_up_counts_once() -> None:
    """However often its message comes."""
    world = World()
    asked_to(world, max_steps=2)
    for _ in range(3):
        top_up(world, max_steps=3, max_tokens=10, max_parallel=2)
    assert (world.run.limits.max_steps, world.run.limits.max_tokens, world.run.limits.max_parallel) == (4, 10, 2)
    assert world.types().count("topped_up") == 1


def test_a_model_call_that_a_pause_ended_is_asked_again() -> None:
    """By the message that woke the run; the one that had asked is done."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started(grace_s=50))
    world.play(handling)
    carry_out(world, world.handling("INBOX:1", "timer", timer=TimerFired(timer="deadline", at=61_000)))
    assert isinstance(carry_out(world, handling)[-1], Ack)
    top_up(world, deadline_s=60)
    moves = carry_out(world, world.handling("INBOX:2", "resumed"))
    assert isinstance(moves[-1], Ask)
    assert (moves[-1].asked.turn, moves[-1].asked.attempt, moves[-1].asked.cause) == (1, 2, "resumed")


def test_an_answer_is_restated_without_asking() -> None:
    """Under a new attempt of the same handling; what was decided stays decided."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling)
    handling.decision = Final(args={"answer": "Hello"}, restate=True)
    command = advance(world.run, handling, world.rules)
    assert isinstance(command, Append)
    [asked] = command.events
    assert isinstance(asked, Asked)
    assert (asked.attempt, asked.cause) == (2, "restated")
    world.write(handling, command.events)
    say = advance(world.run, handling, world.rules)
    assert isinstance(say, Say)
    handling.decision, handling.answer_to_restate = replace(say.answer, restate=False), None
    carry_out(world, handling)
    assert isinstance(world.run.terminal, Done)
    assert world.run.terminal.raw_answer == "Hello"


class Storm:
    """Handlings of messages that go on, crash and are redelivered at random, until the run ends."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        limits = {"max_parallel": 2, "max_steps": 2, "grace_s": 10, "max_tool_calls": 4}
        self.handlings = [self.world.handling("REQUESTS:1", started=started(**limits))]
        self.asks: Counter[tuple[int, int]] = Counter()
        self.timers: set[tuple[str, int]] = set()
        self.tops = 0

    def deliver(self, owner: str, kind: str, **fields: Any) -> None:
        """A message arrives, once."""
        if not any(handling.owner == owner for handling in self.handlings):
            self.handlings.append(self.world.handling(owner, kind, later_token(), **fields))

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

    def step(self) -> None:
        """Let one handling carry out its next command, or crash."""
        world, position = self.world, self.rng.randrange(len(self.handlings))
        handling = self.handlings[position]
        if self.rng.random() < 0.1:
            self.handlings[position] = handling.again(later_token())
            return
        match advance(world.run, handling, world.rules):
            case Append(events) if self.rng.random() < 0.9:
                world.write(handling, events)
            case Ask(asked):
                self.asks[asked.turn, asked.attempt] += 1
                handling.decision = self.reply(asked.turn)
            case Say(asked, answer_to_restate):
                self.asks[asked.turn, asked.attempt] += 1
                handling.decision, handling.answer_to_restate = replace(answer_to_restate, restate=False), None
            case Dispatch(sent, _):
                handling.dispatched |= {call.call_id for call in sent}
                for call in sent:
                    self.deliver(f"INBOX:{call.call_id}", "call_finished", finished=finished(call.call_id))
            case SetTimer(name, at):
                handling.timers |= {(name, at)}
                self.timers |= {(name, at)}
            case Wake(at):
                handling.woken = True
                self.deliver(f"INBOX:{handling.owner}", "resumed", resumed_at=at)
            case command if not isinstance(command, Append):  # Of which another record came first.
                handling.carry_out(command)
        self.people()

    def people(self) -> None:
        """Somebody tops the run up while it waits, now and then; timers go off."""
        if self.world.run.paused is not None and self.rng.random() < 0.2:
            self.tops += 1
            self.deliver(
                f"CONTROL:{self.tops}", "top_up", limits={"max_steps": 2, "max_tool_calls": 3}, top_up_id=f"{self.tops}"
            )
        if self.rng.random() < 0.002:
            self.deliver("INBOX:deadline", "timer", timer=TimerFired(timer="deadline", at=61_000))
        for name, at in list(self.timers):
            if name == "pause" and self.rng.random() < 0.002:
                self.deliver(f"INBOX:pause-{at}", "timer", timer=TimerFired(timer="pause", at=at))
            if name == "retry" and self.rng.random() < 0.05:
                self.timers.discard((name, at))
                # The planner's clock may be behind that of NATS, which fires a timer once.
                now = at - self.rng.choice([0, 0, 5000])
                self.deliver(f"INBOX:retry-{at}", "timer", now=now, timer=TimerFired(timer="retry", at=at))


@pytest.mark.sample(25)
@pytest.mark.parametrize("seed", seeds(300))
def test_every_interleaving_ends_once(seed: int) -> None:
    """With pauses, top-ups, failures, repairs, restated answers: one end, each call settled once, no attempt twice."""
    storm = Storm(seed)
    for _ in range(20_000):
        storm.step()
        if storm.world.run.terminal is not None:
            break
    types = Counter(storm.world.types())
    assert types["done"] + types["error"] == 1
    if types["error"]:
        end = storm.world.run.terminal
        assert isinstance(end, Error)
        assert end.code in {"too_many_attempts", "model_failed", "model_rate_limited"}
        assert storm.world.run.lost >= MAX_LOST or end.code != "too_many_attempts"
    observed = Counter(event.call_id for events in storm.world.written for event in events if event.type == "observed")
    assert max(observed.values(), default=0) <= 1
    assert max(storm.asks.values()) == 1
