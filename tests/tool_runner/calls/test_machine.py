"""The rules of a tool call, without a server: one event at a time, then thousands of interleavings."""

import math
import random
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.faults import Fault
from contracts.tools import ToolFailure
from services.tool_runner.calls import commands, events
from services.tool_runner.calls.commands import Command, Ending
from services.tool_runner.calls.events import Event
from services.tool_runner.calls.machine import CallMachine
from services.tool_runner.calls.state import TRANSITIONS, CallRules, Phase

DEADLINE = 100.0
CANCEL = commands.Cancel()
REPLIES: Sequence[Event] = (
    events.Heartbeat(),
    events.Heartbeat(0.5),
    events.Heartbeat(1000.0),
    events.Progress(b"{}"),
    events.Piece(b"{}"),
    events.Part(1, b"12"),
    events.Result(1, b"1"),
    events.Result(1, b"", parts=2),
    events.Failure(ToolFailure(reason="no paper")),
)


class Call:
    """A machine, its commands so far, and its clock."""

    def __init__(self, *, heartbeat_s: float | None = None, connected_since: float = -10.0, **rules: Any) -> None:
        self.machine = CallMachine(
            CallRules(
                **{
                    "tool": "draw",
                    "idempotent": False,
                    "timeout_s": 30.0,
                    "deadline": DEADLINE,
                    "settling_s": 2.0,
                    "unavailable_s": 5.0,
                    "max_attempts": 3,
                    "max_result_bytes": 10,
                    **rules,
                }
            ),
            connected_since=connected_since,
            heartbeat_s=heartbeat_s,
        )
        self.connected_since: float | None = connected_since
        self.now = 0.0
        self.commands: list[Command] = []

    @property
    def phase(self) -> Phase:
        """The machine's phase."""
        return self.machine.state.phase

    def start(self, *, may_have_begun: bool = False) -> "Call":
        """Start the call at the time 0, with a fresh check."""
        self.receive(events.Started(may_have_begun, self.now))
        return self

    def receive(self, event: Event) -> list[Command]:
        """Return what the machine commands."""
        given = self.machine.receive(event, self.now)
        self.commands += given
        return given

    def at(self, now: float, event: Event) -> list[Command]:
        """Let time pass, then an event."""
        self.now = now
        return self.receive(event)

    def wait(self) -> list[Command]:
        """Let time pass until the alarm."""
        return self.at(max(self.now, self.machine.alarm_at), events.Tick(self.connected_since))

    def fault(self) -> Fault:
        """Return the failure with which the call has ended."""
        last = self.commands[-1]
        assert isinstance(last, commands.Fail)
        return last.failure.fault()

    def sent(self) -> int:
        """Return how often the call was sent."""
        return sum(isinstance(command, commands.Send) for command in self.commands)


def test_a_call_is_sent_and_its_result_ends_it() -> None:
    """One request; the result is passed on as it came."""
    call = Call()
    call.start()
    assert call.commands == [commands.Send(1, start_by=10.0)]
    assert call.at(0.1, events.Result(1, b"42")) == [commands.Succeed(b"42")]
    assert call.phase == "ended"


def test_an_old_check_is_repeated_before_the_call_is_sent() -> None:
    """Until one is younger than a second."""
    call = Call()
    assert call.at(5.0, events.Started(may_have_begun=False, checked_at=0.0)) == [commands.CheckStatus()]
    assert call.at(8.0, events.StatusConfirmed(5.0)) == [commands.CheckStatus()]
    assert call.at(8.1, events.StatusConfirmed(8.0)) == [commands.Send(1, start_by=18.1)]


@pytest.mark.parametrize("event", [events.AlreadySettled(), events.RunEnded()])
def test_a_check_may_end_the_call(event: Event) -> None:
    """It needs no outcome: the tool is not called."""
    call = Call()
    call.at(5.0, events.Started(may_have_begun=False, checked_at=0.0))
    assert call.receive(event)[-1] == commands.Abandon(run_ended=isinstance(event, events.RunEnded))
    assert call.sent() == 0


def test_the_end_of_the_run_cancels_the_call() -> None:
    """The tool receives a cancel, and no outcome is reported, whatever comes later."""
    call = Call().start()
    assert call.receive(events.RunEnded()) == [CANCEL, commands.Abandon(run_ended=True)]
    assert call.receive(events.Result(1, b"42")) == []


def test_a_failure_of_the_tool_ends_the_call() -> None:
    """With the tool's own words."""
    call = Call().start()
    call.receive(events.Failure(ToolFailure(reason="no paper", retryable=True)))
    assert call.fault() == Fault(code="tool_error", reason="no paper", retryable=True)
    assert CANCEL not in call.commands


def test_a_silent_tool_is_queried_early_and_times_out_late() -> None:
    """Nobody subscribes to the status query, so `timeout_s` is the longest silence."""
    call = Call().start()
    assert call.wait() == [commands.QueryStatus(2)]
    assert call.now == 2.5
    assert call.receive(events.NoResponders(2)) == []
    assert call.wait() == [commands.QueryStatus(3)]
    assert call.now == 30.0
    assert call.receive(events.NoResponders(3)) == [CANCEL, call.commands[-1]]
    assert call.fault().code == "tool_timed_out"


@pytest.mark.parametrize("reply", [events.Heartbeat(), events.Progress(b"{}"), events.Piece(b"{}")])
def test_every_reply_restarts_the_silence(reply: Event) -> None:
    """`timeout_s` bounds silence, not the call."""
    call = Call(timeout_s=2.0).start()
    for second in range(1, 20):
        call.at(float(second), reply)
    assert call.machine.alarm_at == 21.0


def test_heartbeats_shorten_the_silence() -> None:
    """To three intervals and a second. The interval is remembered, unless it is longer than `timeout_s`."""
    call = Call().start()
    assert call.receive(events.Heartbeat(0.5)) == [commands.RememberHeartbeat(0.5)]
    assert call.machine.alarm_at == 2.5
    assert call.receive(events.Heartbeat(31.0)) == []
    assert call.machine.alarm_at == 2.5


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_lost_call_is_repeated_only_if_that_is_safe(idempotent: bool) -> None:  # noqa: FBT001, a parameter
    """Its instance sends no more heartbeats, and no other one holds it. The status is checked first."""
    call = Call(idempotent=idempotent).start()
    call.receive(events.Heartbeat(0.5))
    assert call.wait() == [commands.QueryStatus(2)]
    found = call.wait()
    if not idempotent:
        assert found[0] == CANCEL
        assert call.fault().code == "outcome_unknown"
        return
    assert found == [commands.CheckStatus()]
    assert call.receive(events.StatusConfirmed(call.now)) == [commands.Send(3, call.now + 10.0, repeats=1)]
    assert call.receive(events.Result(3, b"1")) == [CANCEL, commands.Succeed(b"1")], "the first instance may be frozen"


def test_a_call_that_is_lost_again_and_again_is_given_up() -> None:
    """After `max_attempts`."""
    call = Call(idempotent=True, heartbeat_s=0.5).start()
    while call.phase != "ended":
        if call.phase == "checking":
            call.receive(events.StatusConfirmed(call.now))
        call.wait()
    assert call.sent() == 3
    assert call.fault().code == "tool_unavailable"


@pytest.mark.parametrize("reply", REPLIES[:6])
def test_an_instance_that_holds_the_call_ends_a_search(reply: Event) -> None:
    """Any reply says so."""
    call = Call(heartbeat_s=0.5).start()
    call.wait()
    assert call.phase == "searching"
    call.receive(reply)
    assert (call.phase, call.sent()) == ("waiting", 1)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_call_that_may_have_begun_is_searched_first(idempotent: bool) -> None:  # noqa: FBT001, a parameter
    """Joined if an instance holds it. Otherwise a tool that is not idempotent is not called."""
    call = Call(idempotent=idempotent)
    call.start(may_have_begun=True)
    assert call.commands == [commands.QueryStatus(1)]
    call.wait()
    assert (call.phase == "checking") == idempotent
    if not idempotent:
        assert call.fault().code == "outcome_unknown"

    joined = Call(idempotent=idempotent).start(may_have_begun=True)
    assert joined.receive(events.Result(1, b"1"))[-1] == commands.Succeed(b"1")
    assert joined.sent() == 0


def test_silence_proves_nothing_while_nats_is_unavailable() -> None:
    """Nor shortly after a reconnect. Then the instances are queried, since replies were lost."""
    call = Call(heartbeat_s=0.5).start()
    call.connected_since = None
    for _ in range(10):
        assert call.wait() == []
    call.connected_since = call.now
    assert call.receive(events.Reconnected()) == [commands.QueryStatus(2)]
    assert call.machine.alarm_at == call.now + 2.5


def test_a_search_goes_on_until_nats_has_been_connected_for_a_while() -> None:
    """Tools reconnect too: until then nobody's silence means that the call is lost."""
    call = Call(heartbeat_s=0.5).start()
    call.wait()
    call.connected_since = None
    for _ in range(20):
        assert isinstance(call.wait()[0], commands.QueryStatus)
    call.connected_since = since = call.now
    call.receive(events.Reconnected())
    while call.phase == "searching":
        call.wait()
    assert call.now > since + 2.0
    assert call.fault().code == "outcome_unknown"


def test_a_request_that_was_not_sent_is_sent_again() -> None:
    """It cannot have begun anywhere, so this is safe for every tool."""
    call = Call().start()
    assert call.receive(events.NotSent(1)) == []
    assert call.wait() == [commands.Send(2, start_by=10.1)]


def test_a_tool_that_nobody_serves_is_waited_for() -> None:
    """For `unavailable_s`; and the status is checked before each further request."""
    call = Call().start()
    while call.phase != "ended":
        call.receive(events.NoResponders(call.machine.state.requests))
        if call.phase == "pausing":
            assert call.wait() == [commands.CheckStatus()]
            call.receive(events.StatusConfirmed(call.now))
    assert call.fault().code == "tool_unavailable"
    assert 5.0 <= call.now < 6.0


def test_no_responders_of_an_older_request_mean_nothing() -> None:
    """An instance has replied since: it holds the call."""
    call = Call().start()
    call.receive(events.Heartbeat())
    assert call.receive(events.NoResponders(1)) == []
    assert call.phase == "waiting"


def test_a_result_in_parts_is_complete_or_sent_again_once() -> None:
    """By the instance that holds it; parts of another request do not count."""
    call = Call().start()
    assert call.receive(events.Part(1, b"12")) == [commands.KeepPart(1, b"12")]
    assert call.receive(events.Result(1, b"", parts=2)) == [commands.QueryStatus(2)]
    call.receive(events.Part(2, b"12"))
    call.receive(events.Part(2, b"34"))
    assert call.receive(events.Result(2, b"", parts=2)) == [commands.SucceedInParts(2)]


@pytest.mark.parametrize("again", [False, True])
def test_a_result_whose_parts_stay_lost_is_invalid(again: bool) -> None:  # noqa: FBT001, a parameter
    """Nobody sends it again, or it is incomplete again."""
    call = Call(idempotent=True).start()
    call.receive(events.Result(1, b"", parts=2))
    assert call.receive(events.Result(2, b"", parts=2)) if again else call.wait()
    assert call.fault().code == "invalid_result"


@pytest.mark.parametrize(
    "event", [events.Result(1, b"x" * 11), events.Part(1, b"x" * 11), events.Flood()], ids=["whole", "part", "flood"]
)
def test_a_result_has_a_limit(event: Event) -> None:
    """In one message, in parts, and waiting to be processed."""
    call = Call().start()
    call.receive(event)
    assert call.fault().code == "result_too_large"


@pytest.mark.parametrize("event", [*REPLIES, events.Tick(-10.0), events.Reconnected()])
def test_the_deadline_ends_a_call(event: Event) -> None:
    """Whatever else comes then."""
    call = Call().start()
    assert call.at(DEADLINE, event)[0] == CANCEL
    assert call.fault().code == "deadline_passed"


def test_a_call_without_time_is_not_sent() -> None:
    """Its deadline has passed."""
    call = Call(deadline=0.0).start()
    assert (call.sent(), call.fault().code) == (0, "deadline_passed")


def test_every_event_has_a_row_in_the_table() -> None:
    """And leads to known phases."""
    assert set(TRANSITIONS) == {*get_args(Event)}
    rows = list(TRANSITIONS.values())
    assert {phase for row in rows for phases in [row, *row.values()] for phase in phases} == set(get_args(Phase))
    assert not any("ended" in row for row in rows)


OTHERS: Sequence[Event] = (
    events.RunEnded(),
    events.AlreadySettled(),
    events.Flood(),
    events.Reconnected(),
    events.Started(may_have_begun=True, checked_at=0.0),
)
LIKELY = ("not_sent", "no_responders", "check", "alarm", "alarm", "offline", "online", *REPLIES[:3])
MOVES: st.SearchStrategy[Event | str] = st.one_of(
    st.sampled_from(LIKELY),
    st.sampled_from(LIKELY),
    st.sampled_from((*REPLIES, *OTHERS)),
    st.builds(events.NoResponders, st.integers(1, 9)),
)


class Interleaving(Call):
    """A call whose promises are checked after each event."""

    def __init__(self, *, may_have_begun: bool, **rules: Any) -> None:
        super().__init__(**rules)
        self.may_have_begun = may_have_begun
        self.unreceived: int | None = None
        """The last request of the call, until there was a reply."""
        self.last_sent = 0
        self.seen: set[tuple[type[Event], Phase, Phase]] = set()

    def receive(self, event: Event) -> list[Command]:
        """Check what one event leads to."""
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
        if isinstance(event, events.NotSent | events.NoResponders) and event.request == self.unreceived:
            self.may_have_begun, self.unreceived = False, None
        for command in found:
            if isinstance(command, commands.Send):
                assert self.machine.rules.idempotent or not self.may_have_begun, "called a second time"
                self.may_have_begun, self.unreceived = True, command.request
                self.last_sent = command.request
                assert command.start_by <= self.machine.rules.deadline

    def play(self, move: Event | str) -> None:
        """Let one thing happen."""
        match move:
            case "alarm" if self.machine.alarm_at < math.inf:
                self.wait()
            case "check":
                self.receive(events.StatusConfirmed(self.now))
            case "not_sent":
                self.receive(events.NotSent(self.last_sent))
            case "no_responders":
                self.receive(events.NoResponders(self.last_sent))
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
    }
)


@given(rules=RULES, moves=st.lists(st.tuples(st.floats(0, 4), MOVES), max_size=40))
@settings(max_examples=1000, deadline=None)
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
    seen: set[tuple[type[Event], Phase, Phase]] = set()
    old = events.StatusConfirmed(-5.0)
    moves: list[Event | str] = [
        "offline",
        "online",
        old,
        events.Tick(-10.0),
        events.Part(1, b"x" * 11),
        *REPLIES,
        *OTHERS,
    ]
    for _ in range(8000):
        call = Interleaving(
            may_have_begun=False,
            idempotent=chance.random() < 0.7,
            heartbeat_s=chance.choice([None, 0.5]),
            timeout_s=chance.choice([0.4, 30.0]),
            deadline=chance.choice([3.0, 4.0, DEADLINE]),
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
                *([events.NoResponders(query), events.NoResponders(99)] if query else []),
            ]
            likely = ["alarm", "check", "not_sent", "no_responders", *further]
            call.play(chance.choice(likely if chance.random() < 0.6 else moves))
        seen |= call.seen
    table = {
        (event, before, after) for event, row in TRANSITIONS.items() for before, found in row.items() for after in found
    }
    missing = sorted(f"{event.__name__}: {before} -> {after}" for event, before, after in table - seen)
    assert not missing
