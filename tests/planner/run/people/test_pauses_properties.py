"""Interleavings of runs with pauses: handlings that crash, people who decide twice, timers, tools that ask.

A message may be handled twice at a time, as one is whose first handling was stopped. Once a handling has acknowledged
it, it is not delivered again.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.runs.events import Observed, Paused, Redelivered, Resumed
from contracts.runs.inbox import CallPaused, ResumeRequested, TimerFired
from contracts.runs.pauses import ApprovalRule
from services.planner.run.calls.starting import approval_of, digest_of
from services.planner.run.commands import Abandon, Ack, Answer, Append, Ask, Command, Dispatch, SetTimer, Wake
from services.planner.run.state.run import Begun, Event
from services.planner.run.turn.decision import Decision
from services.shared.runs.waiting import waiting_after
from tests.planner.handlings import Attempt, advance, later_token
from tests.planner.run.pause_world import SPECS, PauseWorld, opening, plan
from tests.planner.run_world import final, finished
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


class Storm:
    """Handlings that go on, crash and are redelivered at random, until the run ends."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = PauseWorld()
        limits: dict[str, Any] = {"max_parallel": self.rng.choice([1, 2, 8]), "max_steps": 3, "deadline_s": 500}
        begun = opening(*RULES, session_id="s" if self.rng.random() < 0.5 else None, **limits)
        first = self.world.handling("REQUESTS:1", started=begun, now=self.world.now, specs=SPECS, place=Begun(1))
        self.handlings = [first]
        self.delivered, self.acknowledged = {first.owner}, set[str]()
        self.timers: dict[str, int] = {}
        self.seen: list[Paused] = []
        self.sent: list[Sent] = []
        self.answers: list[tuple[str, str | None, bool]] = []
        self.messages = 0

    def deliver(self, owner: str, kind: str, **fields: Any) -> None:
        """A message arrives, once per name."""
        if owner not in self.delivered:
            self.delivered.add(owner)
            self.handlings.append(
                self.world.handling(
                    owner, kind, later_token(), now=self.world.now, specs=SPECS, place=Begun(1), **fields
                )
            )

    def reply(self, turn: int) -> Decision:
        tools = [self.rng.choice(["pay", "work"]) for _ in range(self.rng.randint(1, 4))]
        return final() if turn == 3 else plan(*tools)

    def step(self) -> None:
        """Let one handling carry out its next command, or crash."""
        self.world.now += self.rng.choice([0, 1, 50])
        if self.handlings:
            handling = self.rng.choice(self.handlings)
            handling.now = self.world.now
            chance = self.rng.random()
            if chance < 0.1:
                self.end(handling)
            elif chance < 0.15:
                self.redeliver(handling)
            else:
                self.carry_out(handling)
        else:
            assert self.world.run.pauses, "the run stands still"
        self.outside()

    def end(self, handling: Attempt) -> None:
        """A handling ends without an acknowledgement. Its message comes again, unless another one acknowledged it."""
        self.handlings.remove(handling)
        if all(other.owner != handling.owner for other in self.handlings):
            self.redeliver(handling)

    def redeliver(self, handling: Attempt) -> None:
        """The message of a handling is delivered again, beside it."""
        if handling.owner not in self.acknowledged:
            self.handlings.append(handling.again(later_token()))
            self.handlings[-1].place, self.handlings[-1].now = Begun(1), self.world.now

    def carry_out(self, handling: Attempt) -> None:
        command = advance(self.world.run, handling, self.world.rules)
        match command:
            case Append(events):
                if self.rng.random() < 0.9:
                    self.write(handling, events)
            case Ack():
                self.acknowledged.add(handling.owner)
                self.handlings.remove(handling)
            case Abandon():
                self.end(handling)
            case _:
                self.affect(handling, command)

    def write(self, handling: Attempt, events: list[Event]) -> None:
        """Store a record. A handling of a message that came again looks then whether the message is still there."""
        self.world.write(handling, events)
        self.seen += [event for event in events if isinstance(event, Paused)]
        if isinstance(events[0], Redelivered) and handling.owner in self.acknowledged:
            self.handlings.remove(handling)

    def affect(self, handling: Attempt, command: Command) -> None:
        match command:
            case Ask(asked):
                handling.decision = self.reply(asked.turn)
            case Dispatch():
                self.dispatch(command)
            case SetTimer(name, at):
                self.timers[name] = at
            case Wake():
                self.deliver(f"INBOX:{handling.owner}", "resumed")
            case Answer(request, code, _, is_repeated):
                self.answers.append((request, code, is_repeated))
        handling.carry_out(command)

    def dispatch(self, command: Dispatch) -> None:
        """Send calls, as the dispatcher does, and let their tools end or pause the rounds."""
        run = self.world.run
        for call in command.calls:
            assert call.call_id not in {paused.call_id for paused in run.pauses.values()}
            given = approval_of(run, call)
            digest = digest_of(run, call, given.revision if given is not None else 1)
            again = call.call_id in command.again
            self.sent.append(Sent(call.call_id, call.round, digest, given.digest if given is not None else None, again))
            name = f"INBOX:{call.call_id}-{call.round}"
            if call.round < 2 and self.rng.random() < 0.3:
                asks = {"call_id": call.call_id, "tool": call.tool, "round": call.round, "number": call.round}
                more = {"reason": "input", "expires_in_s": 600, "default": self.rng.choice(["reject", "answer"])}
                self.deliver(name, CallPaused.model_validate({**asks, **more}))
            else:
                self.deliver(name, finished(call.call_id, tool=call.tool))

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
            self.messages += 1
            self.deliver(f"CONTROL:{self.messages}", ResumeRequested.model_validate(request))
        for name, at in list(self.timers.items()):
            if self.world.now >= at or self.rng.random() < 0.003:
                if self.world.now < at and self.world.run.waits_since is not None:
                    self.world.now = at  # Nothing else happens until then.
                if self.world.now >= at:
                    fired = TimerFired.model_validate({"timer": name, "at": at})
                    self.deliver(f"INBOX:{name}-{at}", fired)
        if self.rng.random() < 0.0002:
            self.deliver("CONTROL:cancel", "cancel")


def stored(storm: Storm, kind: type) -> list[Any]:
    return [event for events in storm.world.written for event in events if isinstance(event, kind)]


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", seeds(150))
def test_every_interleaving_keeps_the_promises(seed: int) -> None:
    """No held call is sent, an approved one is sent with its digest, each pause is closed once, and the run ends."""
    storm = Storm(seed)
    for _ in range(20_000):
        storm.step()
        if storm.world.run.terminal is not None:
            break
    assert storm.world.run.terminal is not None
    assert storm.world.run.pauses == {}
    closings = Counter(resumed.pause_id for resumed in stored(storm, Resumed))
    assert set(closings.values()) <= {1}
    assert set(closings) <= {pause.pause_id for pause in storm.seen}
    assert set(Counter(observed.call_id for observed in stored(storm, Observed)).values()) <= {1}
    check_sent(storm)
    check_decisions(storm)


@pytest.mark.parametrize("seed", range(8))
def test_the_gateway_finds_the_same_pauses_in_the_log(seed: int) -> None:
    """After each record: `Waiting`, by which the gateway reads a log, agrees with the run."""
    storm, read = Storm(seed), 0
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


def check_sent(storm: Storm) -> None:
    """Each call that was guarded bears the approval of what was sent; nothing is sent twice unless it may be."""
    guarded = {pause.call_id for pause in storm.seen if pause.spec is not None}
    approved = {resumed.digest for resumed in stored(storm, Resumed) if resumed.decision in {"approve", "edit"}}
    for sent in storm.sent:
        if sent.call_id in guarded:
            assert sent.approved == sent.digest
            assert sent.digest in approved
    first = Counter((sent.call_id, sent.round) for sent in storm.sent if not sent.again)
    assert set(first.values()) <= {1}


def check_decisions(storm: Storm) -> None:
    """A request takes effect once; a timer never approves."""
    facts = [event for kind in (Resumed, Paused) for event in stored(storm, kind) if event.id is not None]
    assert set(Counter(event.id for event in facts).values()) <= {1}
    took_effect = {request for request, code, is_repeated in storm.answers if code is None}
    assert took_effect <= {event.id for event in facts}
    assert all(resumed.decision in {"reject", "answer"} for resumed in stored(storm, Resumed) if resumed.by == "timer")


def test_the_storms_reach_what_they_are_for() -> None:
    """Approvals, rejections, edits, answers, expiries, further revisions and rounds all happen."""
    decisions: Counter[str] = Counter()
    for seed in range(40):
        storm = Storm(seed)
        for _ in range(20_000):
            storm.step()
            if storm.world.run.terminal is not None:
                break
        decisions.update(f"{resumed.decision} {resumed.by}" for resumed in stored(storm, Resumed))
        decisions.update(f"revision {pause.revision}" for pause in storm.seen)
        decisions.update(f"round {sent.round}" for sent in storm.sent)
        decisions.update(f"code {code}" for _, code, _ in storm.answers)
    wanted = {*(f"{decision} " for decision in DECISIONS), "reject timer", "answer timer", "revision 2", "round 2"}
    assert wanted | {"code pause_closed", "code pause_changed", "code None"} <= set(decisions), decisions
