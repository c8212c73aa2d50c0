"""A reply is resolved once, at one moment: what was shown is what is recorded, however the clock jumps in between."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from contracts.runs.events import Chunk, Done
from contracts.runs.payload import Usage
from contracts.wire.faults import Fault
from contracts.wire.names import unix_ms
from services.planner.effects import executor
from services.planner.effects.chunk_publisher import ChunkPublisher
from services.planner.run.commands import Command, Say
from services.planner.run.turn.decide import resolve_decision, text_of
from services.planner.run.turn.decision import Decision, Failed, Final, Invalid
from tests.planner.conftest import Plan
from tests.planner.handlings import Attempt
from tests.planner.run_world import World, started
from tests.support.model_server import ModelServer
from tests.support.model_server import Say as Reply
from tests.support.samples import seeds

USAGE = Usage(model_calls=1, cost_usd=0.0)
SALVAGED = Invalid(
    complaint="no action", reply="It is 42.", salvage=Final(args={"answer": "It is 42."}, usage=USAGE), usage=USAGE
)
REPLIES: list[Decision] = [
    SALVAGED,
    Invalid(complaint="no action", reply="{", usage=USAGE),
    Failed(fault=Fault(code="model_failed", reason="503", retryable=True), usage=USAGE),
    Final(args={"confidence": 0.5}, has_text=False, usage=USAGE),
    Final(args={"answer": "Hello"}, usage=USAGE),
    Final(args={"answer": "Hello"}, restate=True, usage=USAGE),
]


class Clocked(World):
    """One handling whose clock jumps, at random, between all that happens: also past the deadline."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.attempt = self.handling("REQUESTS:1", started=started())
        self.shown: dict[tuple[int, int], str] = {}

    def tick(self) -> int:
        """Time goes on, at times by a minute."""
        self.attempt.now += self.rng.choice([1, 1, 20_000, 60_000])
        return int(self.attempt.now)

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        super().write(handling, events)
        self.shown |= {(each.action_seq, each.attempt): each.text for each in events if isinstance(each, Chunk)}

    def next_reply(self, _: list[Decision]) -> Decision:
        """The model replies: the reply is resolved, shown, and then stored for a while."""
        decision, asked = resolve_decision(self.run, self.rng.choice(REPLIES), self.tick(), self.rules), self.run.asked
        assert asked is not None
        again = isinstance(decision, Final) and decision.restate
        self.shown[asked.turn, asked.attempt] = "void" if again else text_of(self.run, decision)
        self.tick()
        return decision

    def carry_out(self, handling: Attempt, command: Command) -> None:
        super().carry_out(handling, command)
        if isinstance(command, Say):
            self.shown[command.asked.turn, command.asked.attempt] = text_of(self.run, command.answer)
            self.tick()


@pytest.mark.sample(25)
@pytest.mark.parametrize("seed", seeds(400))
def test_what_is_recorded_was_shown_whatever_the_clock_does(seed: int) -> None:
    """The chunks of the last attempt are the answer of `done`."""
    clocked = Clocked(seed)
    clocked.handle(clocked.attempt)
    end = clocked.run.terminal
    assert end is not None
    if isinstance(end, Done):
        assert clocked.shown[max(clocked.shown)] == end.raw_answer


async def test_a_run_whose_deadline_passes_between_showing_and_recording(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS is slow to store what is shown: the answer of the end was shown all the same."""
    drained, late = ChunkPublisher.drained, [0]

    async def slow(publisher: ChunkPublisher) -> None:
        await drained(publisher)
        late[0] = 700_000

    monkeypatch.setattr(ChunkPublisher, "drained", slow)
    monkeypatch.setattr(executor, "unix_ms", lambda: unix_ms() + late[0])
    provider.say(Reply(text="It is 42."))
    story = await (await plan()).tell()
    assert (story.end.type, story.end.reason) == ("done", "budget_exhausted")
    assert story.shown() == story.end.raw_answer
