"""Interleavings of runs with pauses: handlings that crash, people who decide twice, timers, tools that ask."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.runs.events import Observed, Paused, PlannedCall, Redelivered, Resumed
from contracts.runs.inbox import CallPaused, ResumeRequested, TimerFired
from contracts.runs.pauses import ApprovalRule
from services.planner.run.calls.starting import approval_of, digest_of
from services.planner.run.commands import Abandon, Ack, Answer, Command
from services.planner.run.state.run import Begun
from services.planner.run.turn.decision import Decision
from services.shared.runs.waiting import waiting_after
from tests.planner.handlings import Attempt, later_token
from tests.planner.run.pause_world import SPECS, opening, plan
from tests.planner.run_world import Storm, final, finished
from tests.support.samples import seeds

RULES = (
    ApprovalRule(name="twice", tools=["work"], arguments={"properties": {"n": {"const": 2}}}, reapprove_edits=True),
    ApprovalRule(name="once", tools=["pay"], ask="once_per_session", expires_in_s=3600),
)
DECISIONS = ("approve", "reject", "edit", "answer")


@dataclass
class Sent:
    """A call that was sent."""

    call_id: str
    round: int
    digest: str
    approved: str | None
    again: bool


class PauseStorm(Storm):
    """A message may be handled twice at a time. Once it is acknowledged, it is not delivered again."""

    crashes = 0.15

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        limits: dict[str, Any] = {"max_parallel": rng.choice([1, 2, 8]), "max_steps": 3, "deadline_s": 500}
        begun = opening(*RULES, session_id=rng.choice(["s", None]), **limits)
        super().__init__(seed, begun, specs=SPECS, place=Begun(1))
        self.acknowledged: set[str] = set()
        self.timers: dict[str, TimerFired] = {}
        self.seen: list[Paused] = []
        self.sent: list[Sent] = []
        self.answers: list[tuple[str, str | None, bool]] = []

    def reply(self, turn: int) -> Decision:
        tools = [self.rng.choice(["pay", "work"]) for _ in range(self.rng.randint(1, 4))]
        return final() if turn == 3 else plan(*tools)

    def step(self) -> None:
        self.now += self.rng.choice([0, 1, 50])
        if self.handlings:
            super().step()
        else:
            assert self.world.run.pauses, "the run stands still"
            self.outside()

    def crash(self, handling: Attempt) -> None:
        """A handling ends without an acknowledgement, or its message is delivered again beside it."""
        if self.rng.random() < 2 / 3:
            self.end(handling)
        else:
            self.redeliver(handling)

    def end(self, handling: Attempt) -> None:
        """The message of a handling that ended comes again, unless another one is at work or acknowledged it."""
        self.handlings.remove(handling)
        if all(other.owner != handling.owner for other in self.handlings):
            self.redeliver(handling)

    def redeliver(self, handling: Attempt) -> None:
        if handling.owner not in self.acknowledged:
            self.handlings.append(handling.again(later_token()))
            self.handlings[-1].place = Begun(1)

    def carry_out(self, handling: Attempt) -> Command:
        handling.now = self.now
        match command := super().carry_out(handling):
            case Ack():
                self.acknowledged.add(handling.owner)
                self.handlings.remove(handling)
            case Abandon():
                self.end(handling)
            case Answer(request, code, _, is_repeated):
                self.answers.append((request, code, is_repeated))
        return command

    def write(self, handling: Attempt, events: Sequence[Any]) -> None:
        """Store a record. A handling of a message that came again looks then whether the message is still there."""
        super().write(handling, events)
        self.seen += [event for event in events if isinstance(event, Paused)]
        if isinstance(events[0], Redelivered) and handling.owner in self.acknowledged:
            self.handlings.remove(handling)

    def send(self, call: PlannedCall, *, again: bool) -> None:
        """Send a call, as the dispatcher does, and let its tool end or pause the round."""
        run = self.world.run
        assert call.call_id not in {paused.call_id for paused in run.pauses.values()}
        given = approval_of(run, call)
        digest = digest_of(run, call, given.revision if given is not None else 1)
        self.sent.append(Sent(call.call_id, call.round, digest, given.digest if given is not None else None, again))
        name = f"INBOX:{call.call_id}-{call.round}"
        if call.round < 2 and self.rng.random() < 0.3:
            asks = {"call_id": call.call_id, "tool": call.tool, "round": call.round, "number": call.round}
            more = {"reason": "input", "expires_in_s": 600, "default": self.rng.choice(["reject", "answer"])}
            self.deliver(name, CallPaused.model_validate({**asks, **more}))
        else:
            self.deliver(name, finished(call.call_id, tool=call.tool))

    def set_timer(self, timer: TimerFired) -> None:
        self.timers[timer.timer] = timer

    def outside(self) -> None:
        """People decide about pauses that they saw some time ago; timers fire at their time, or late."""
        if self.seen and self.rng.random() < 0.1:
            pause = self.rng.choice(self.seen)
            request = {
                "id": f"{self.rng.randrange(30)}",
                "pause_id": pause.pause_id,
                "token": pause.token,
                "decision": self.rng.choice(DECISIONS),
                "args": {"n": self.rng.randrange(9)},
            }
            self.deliver(f"CONTROL:{len(self.delivered)}", ResumeRequested.model_validate(request))
        for timer in [*self.timers.values()]:
            at = timer.at or 0
            if self.now >= at or (self.rng.random() < 0.003 and self.world.run.waits_since is not None):
                self.now = max(self.now, at)  # Nothing else happens until then.
                self.deliver(f"INBOX:{timer.timer}-{at}", timer)
        if self.rng.random() < 0.0002:
            self.deliver("CONTROL:cancel", "cancel")


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", seeds(150))
def test_every_interleaving_keeps_the_promises(seed: int) -> None:
    """No held call is sent, an approved one is sent with its digest, each pause is closed once, and the run ends."""
    storm = PauseStorm(seed)
    storm.play()
    assert storm.world.run.pauses == {}
    closings = Counter(resumed.pause_id for resumed in storm.world.of(Resumed))
    assert set(closings.values()) <= {1}
    assert set(closings) <= {pause.pause_id for pause in storm.seen}
    assert set(Counter(observed.call_id for observed in storm.world.of(Observed)).values()) <= {1}
    check_sent(storm)
    check_decisions(storm)


@pytest.mark.parametrize("seed", range(8))
def test_the_gateway_finds_the_same_pauses_in_the_log(seed: int) -> None:
    """After each record: `Waiting`, by which the gateway reads a log, agrees with the run."""
    storm, read = PauseStorm(seed), 0
    run = storm.world.run
    while run.terminal is None:
        storm.step()
        if len(storm.world.written) == read:
            continue
        read = len(storm.world.written)
        events = [event for record in storm.world.written for event in record]
        waiting = waiting_after(events)
        assert [*waiting.pauses] == [*run.pauses]
        assert waiting.is_for_person is (run.waits_since is not None or run.paused is not None)


def check_sent(storm: PauseStorm) -> None:
    """Each call that was guarded bears the approval of what was sent; nothing is sent twice unless it may be."""
    guarded = {pause.call_id for pause in storm.seen if pause.spec is not None}
    approved = {resumed.digest for resumed in storm.world.of(Resumed) if resumed.decision in {"approve", "edit"}}
    for sent in storm.sent:
        if sent.call_id in guarded:
            assert sent.approved == sent.digest
            assert sent.digest in approved
    first = Counter((sent.call_id, sent.round) for sent in storm.sent if not sent.again)
    assert set(first.values()) <= {1}


def check_decisions(storm: PauseStorm) -> None:
    """A request takes effect once; a timer never approves."""
    facts = [event for event in storm.world.of(Resumed | Paused) if event.id is not None]
    assert set(Counter(event.id for event in facts).values()) <= {1}
    took_effect = {request for request, code, is_repeated in storm.answers if code is None}
    assert took_effect <= {event.id for event in facts}
    assert all(resumed.decision in {"reject", "answer"} for resumed in storm.world.of(Resumed) if resumed.by == "timer")


def test_the_storms_reach_what_they_are_for() -> None:
    """Approvals, rejections, edits, answers, expiries, further revisions and rounds all happen."""
    decisions: Counter[str] = Counter()
    for seed in range(20):
        storm = PauseStorm(seed)
        storm.play()
        decisions.update(f"{resumed.decision} {resumed.by}" for resumed in storm.world.of(Resumed))
        decisions.update(f"revision {pause.revision}" for pause in storm.seen)
        decisions.update(f"round {sent.round}" for sent in storm.sent)
        decisions.update(f"code {code}" for _, code, _ in storm.answers)
    wanted = {*(f"{decision} " for decision in DECISIONS), "reject timer", "answer timer", "revision 2", "round 2"}
    assert wanted | {"code pause_closed", "code pause_changed", "code None"} <= set(decisions), decisions
