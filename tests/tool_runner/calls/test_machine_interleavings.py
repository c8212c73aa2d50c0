"""The rules of a tool call, without a server: thousands of interleavings of events."""

import math
import random
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tool_runner.calls import commands, events
from services.tool_runner.calls.commands import Command, Ending
from services.tool_runner.calls.events import Event
from services.tool_runner.calls.state import TRANSITIONS, Phase
from tests.tool_runner.driven_call import DEADLINE, REPLIES, Call

OTHERS: Sequence[Event] = (
    events.RunEnded(),
    events.AlreadyCompleted(),
    events.Flood(),
    events.Reconnected(),
    events.Started(may_have_begun=True, checked_at=0.0),
)
LIKELY = ("not_sent", "no_responders", "busy", "late", "check", "alarm", "alarm", "offline", "online", *REPLIES[:3])
MOVES: st.SearchStrategy[Event | str] = st.one_of(
    st.sampled_from(LIKELY),
    st.sampled_from(LIKELY),
    st.sampled_from((*REPLIES, *OTHERS)),
    st.builds(events.NoResponders, st.integers(1, 9)),
    st.builds(events.Lost, st.integers(1, 9)),
    st.builds(events.Declined, st.integers(1, 9), st.booleans()),
)


class Interleaving(Call):
    """A call whose promises are checked after each event."""

    def __init__(self, *, may_have_begun: bool, **rules: Any) -> None:
        super().__init__(**rules)
        self.may_have_begun = may_have_begun
        self.unreceived: int | None = None
        """The last request of the call, until there was a reply."""
        self.start_by = -math.inf
        """By when an instance may begin it."""
        self.last_sent = 0
        self.seen: set[tuple[type[Event], Phase, Phase]] = set()

    def receive(self, event: Event) -> list[Command]:
        before = self.phase
        state = repr(self.machine.state)
        found = super().receive(event)
        allowed = TRANSITIONS[type(event)].get(before)
        if allowed is None:
            assert (found, repr(self.machine.state)) == ([], state), "an illegal event changes nothing"
            return found
        assert self.phase in allowed
        self.seen.add((type(event), before, self.phase))
        if self.phase == "ended" and before != "ended":
            assert isinstance(found[-1], Ending)
        if isinstance(event, events.RunEnded):
            assert found[-1] == commands.Abandon(run_ended=True), "no outcome is reported once the run has ended"
        assert sum(isinstance(command, Ending) for command in self.commands) == (self.phase == "ended")
        self._check_requests(event, found)
        return found

    def _check_requests(self, event: Event, found: list[Command]) -> None:
        if isinstance(event, get_args(events.Reply)):
            self.may_have_begun, self.unreceived = True, None
        if (
            isinstance(event, events.NotSent | events.NoResponders | events.Declined)
            and event.request == self.unreceived
        ):
            self.may_have_begun, self.unreceived = False, None
        if isinstance(event, events.Lost) and event.request == self.unreceived:
            self.unreceived = None  # Its connection says that nobody has the request any more.
        for command in found:
            if isinstance(command, commands.Decline):
                assert not self.may_have_begun, "declined, and an instance may work on it"
            is_lost = isinstance(command, commands.Fail) and command.failure.fault().code == "outcome_unknown"
            if isinstance(command, commands.Send) or is_lost:
                assert self.unreceived is None or self.now >= self.start_by, "given up, and it may begin"
            if isinstance(command, commands.Send):
                assert self.machine.rules.idempotent or not self.may_have_begun, "called a second time"
                self.may_have_begun, self.unreceived = True, command.request
                self.last_sent, self.start_by = command.request, command.start_by
                assert command.start_by <= self.machine.rules.deadline

    def play(self, move: Event | str) -> None:
        match move:
            case "alarm" if self.machine.alarm_at < math.inf:
                self.wait()
            case "check":
                self.receive(events.StatusConfirmed(self.now))
            case "not_sent":
                self.receive(events.NotSent(self.last_sent))
            case "no_responders":
                self.receive(events.NoResponders(self.last_sent))
            case "busy" | "late":
                self.receive(events.Declined(self.last_sent, is_busy=move == "busy"))
            case "offline":
                self.connected_since = None
            case "online" if self.connected_since is None:
                self.connected_since = self.now
                self.receive(events.Reconnected())
            case str():
                pass
            case _:
                self.receive(move)

    def run_out(self) -> None:
        """Let nothing but time pass, while NATS answers."""
        for _ in range(2000):
            if self.phase == "checking":
                self.receive(events.StatusConfirmed(self.now))
            elif self.phase != "ended":
                self.wait()


RULES = st.fixed_dictionaries(
    {
        "idempotent": st.booleans(),
        "may_have_begun": st.booleans(),
        "heartbeat_s": st.sampled_from([None, 0.5]),
        "timeout_s": st.sampled_from([0.4, 5.0, 30.0]),
        "settling_s": st.sampled_from([0.0, 2.0]),
        "deadline": st.sampled_from([3.0, DEADLINE]),
        "may_decline": st.booleans(),
    }
)


@given(rules=RULES, moves=st.lists(st.tuples(st.floats(0, 4), MOVES), max_size=40))
def test_no_interleaving_breaks_a_promise(rules: dict[str, Any], moves: list[tuple[float, Event | str]]) -> None:
    """One ending at most, no second call of a non-idempotent tool, and an end at the deadline at the latest."""
    call = Interleaving(**rules)
    call.start(may_have_begun=rules["may_have_begun"])
    for seconds, move in moves:
        call.now += seconds
        call.play(move)
    before = call.now
    call.run_out()
    assert call.phase == "ended"
    assert call.now <= max(before, call.machine.rules.deadline) + 1.0, "a round of a search at most"


def test_every_transition_of_the_table_happens() -> None:
    """So the table says no more than the machine does; that it says no less is checked at every step."""
    chance = random.Random(1)
    table = {
        (event, before, after) for event, row in TRANSITIONS.items() for before, found in row.items() for after in found
    }
    old = events.StatusConfirmed(-5.0)
    moves: list[Event | str] = ["offline", "online", old, events.Tick(-10.0), events.Part(1, b"x" * 11)]
    moves += [*REPLIES, *OTHERS]
    for _ in range(8000):
        call = Interleaving(
            may_have_begun=False,
            idempotent=chance.random() < 0.7,
            heartbeat_s=chance.choice([None, 0.5]),
            timeout_s=chance.choice([0.4, 30.0]),
            deadline=chance.choice([3.0, 4.0, DEADLINE]),
            may_decline=chance.random() < 0.1,
        )
        if chance.random() < 0.1:
            call.receive(events.RunEnded())
        call.now = chance.choice([0.0, 3.0])
        call.receive(events.Started(chance.random() < 0.2, chance.choice([call.now, -5.0])))
        for _ in range(12):
            call.now += chance.choice([0.0, 0.0, 0.5, 2.0])
            query = call.machine.state.query
            further: list[Event] = [
                events.NotSent(99),
                events.Lost(99),
                events.Lost(call.machine.state.sent),
                events.Declined(99, is_busy=True),
                *([events.NoResponders(query), events.NoResponders(99)] if query else []),
                *([events.NoResponders(probe)] if (probe := call.machine.state.probe) else []),
            ]
            likely = ["alarm", "check", "not_sent", "no_responders", "busy", "late", *further]
            call.play(chance.choice(likely if chance.random() < 0.6 else moves))
        table -= call.seen
        if not table:
            return
    pytest.fail(str(sorted(f"{event.__name__}: {before} -> {after}" for event, before, after in table)))
