"""The rules of a tool call, without a server: one event at a time."""

from typing import get_args

import pytest

from services.tool_runner.calls import commands, events
from services.tool_runner.calls.events import Content, Event
from services.tool_runner.calls.state import TRANSITIONS, Phase
from tests.tool_runner.driven_call import CANCEL, DEADLINE, REPLIES, Call


def test_the_end_of_the_run_cancels_the_call() -> None:
    """The tool receives a cancel, and no outcome is reported, whatever comes later."""
    call = Call().start()
    assert call.receive(events.RunEnded()) == [CANCEL, commands.Abandon(run_ended=True)]
    assert call.receive(events.Result(1, b"42")) == []


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


@pytest.mark.parametrize("reply", [events.Heartbeat(), events.Progress(b"{}"), Content("a text")])
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
    assert call.receive(events.Heartbeat(31.0)) == []
    call.wait_for("searching")
    assert call.now == 2.5


def test_an_instance_that_is_connected_keeps_its_time() -> None:
    """Whether it is, is asked in each quarter of a second: a process that lacks CPU answers nothing."""
    call = Call().start()
    call.receive(events.Heartbeat(0.5, "one"))
    pings = []
    while (given := call.wait()) and call.phase == "waiting":
        pings += given
    assert pings == [commands.PingInstance(number, "one") for number in range(2, 11)]
    assert (call.phase, call.now) == ("searching", 2.5)


@pytest.mark.parametrize(("instance", "lost_at"), [("one", 0.65), (None, 2.5)])
def test_an_instance_that_is_not_connected_has_a_moment_to_come_back(instance: str | None, lost_at: float) -> None:
    """A process that was killed does not, so its call is lost half a second after that is known.

    Without a reply it is lost once nobody may begin it any more.
    """
    for comes_back in (False, True):
        call = Call(heartbeat_s=0.5).start()
        if instance is not None:
            call.receive(events.Heartbeat(0.5, instance))
        question = commands.PingInstance(2, instance) if instance else commands.QueryStatus(2)
        assert call.wait() == [question]
        assert call.receive(events.NoResponders(2)) == [commands.QueryStatus(3)]
        assert call.now == (0.25 if instance else 0.65)
        assert call.receive(events.NoResponders(3)) == []
        assert call.wait() == [commands.QueryStatus(4)]
        if comes_back:
            call.receive(events.Heartbeat(0.5))
            assert call.phase == "waiting"
        else:
            call.wait_for("ended")
            assert call.fault().code == "outcome_unknown"
            assert lost_at <= call.now < lost_at + 0.6


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_lost_call_is_repeated_only_if_that_is_safe(idempotent: bool) -> None:  # noqa: FBT001, a parameter
    """Its instance sends no more heartbeats, and no other one holds it. The status is checked first."""
    call = Call(idempotent=idempotent).start()
    call.receive(events.Heartbeat(0.5))
    (query,) = call.wait_for("searching")
    assert isinstance(query, commands.QueryStatus)
    found = call.wait()
    if not idempotent:
        assert found[0] == CANCEL
        assert call.fault().code == "outcome_unknown"
        return
    assert found == [commands.CheckStatus()]
    request = query.request + 1
    assert call.receive(events.StatusConfirmed(call.now)) == [commands.Send(request, call.now + 2.5, repeats=1)]
    assert call.receive(events.Result(request, b"1")) == [CANCEL, commands.Succeed(b"1")], (
        "the first instance may be frozen"
    )


def test_a_call_that_is_lost_again_and_again_is_given_up() -> None:
    """After `max_attempts`."""
    call = Call(idempotent=True, heartbeat_s=0.5).start()
    call.wait_for("ended")
    assert call.sent() == 3
    assert call.fault().code == "tool_unavailable"


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_call_that_may_have_begun_is_searched_first(idempotent: bool) -> None:  # noqa: FBT001, a parameter
    """Joined if an instance holds it. Otherwise a tool that is not idempotent is not called."""
    call = Call(idempotent=idempotent, heartbeat_s=0.5)
    call.start(may_have_begun=True)
    assert call.commands == [commands.QueryStatus(1)]
    call.wait_for("checking" if idempotent else "ended")
    assert call.now > 2.5, "another tool runner may have sent it just before"
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
    (query,) = call.receive(events.Reconnected())
    assert isinstance(query, commands.QueryStatus)
    assert call.machine.alarm_at == call.now + 2.0, "the next question"


def test_a_search_goes_on_until_nats_has_been_connected_for_a_while() -> None:
    """Tools reconnect too: until then nobody's silence means that the call is lost."""
    call = Call(heartbeat_s=0.5).start()
    call.wait_for("searching")
    call.connected_since = None
    for _ in range(20):
        assert isinstance(call.wait()[0], commands.QueryStatus)
    call.connected_since = since = call.now
    call.receive(events.Reconnected())
    while call.phase == "searching":
        call.wait()
    assert call.now > since + 2.0
    assert call.fault().code == "outcome_unknown"


@pytest.mark.parametrize(("died", "why"), [(0, ""), (1, "its process died once in this call, and ")])
def test_a_tool_that_nobody_serves_is_waited_for(died: int, why: str) -> None:
    """For `unavailable_s`; and the status is checked before each further request."""
    call = Call(heartbeat_s=0.5, idempotent=True).start()
    for _ in range(died):
        call.wait_for("searching")
        while call.phase == "searching":
            call.wait()
        call.receive(events.StatusConfirmed(call.now))
    began = call.now
    while call.phase != "ended":
        call.receive(events.NoResponders(call.machine.state.requests))
        if call.phase == "delayed":
            assert call.wait() == [commands.CheckStatus()]
            call.receive(events.StatusConfirmed(call.now))
    assert call.fault().code == "tool_unavailable"
    assert f"{why}none is connected now" in call.fault().reason
    assert 5.0 <= call.now - began < 6.0


def test_a_busy_tool_is_called_again_until_the_deadline() -> None:
    """After short pauses, which grow. The requests count neither as attempts nor as unavailability."""
    call = Call(unavailable_s=0.1).start()
    pauses = []
    while call.phase != "ended":
        before = call.now
        assert call.receive(events.Declined(call.machine.state.requests, is_busy=True)) == []
        call.wait()
        pauses.append(call.now - before)
        if call.phase == "checking":
            call.receive(events.StatusConfirmed(call.now))
    assert pauses[0] < pauses[1] < 0.1
    assert max(pauses) == pytest.approx(0.5)
    assert call.fault().code == "deadline_passed"
    assert call.machine.state.attempts == 0


@pytest.mark.parametrize(
    "event",
    [events.Declined(1, is_busy=True), events.Declined(1, is_busy=False), events.NoResponders(1), events.NotSent(1)],
)
def test_a_call_may_be_declined(event: Event) -> None:
    """Where the caller has another way to send it, it does not wait for a call that nobody has begun."""
    call = Call(may_decline=True).start()
    assert call.receive(event) == [commands.Decline()]
    assert call.phase == "ended"


def test_a_call_that_may_have_begun_is_not_declined() -> None:
    """The first instance may still work on it: the call is sent again, as any other."""
    call = Call(idempotent=True, heartbeat_s=0.5, may_decline=True).start()
    while call.sent() < 2:
        call.wait()
        if call.phase == "checking":
            call.receive(events.StatusConfirmed(call.now))
    assert call.receive(events.Declined(call.machine.state.requests, is_busy=True)) == []
    assert call.phase == "delayed"


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


def test_every_event_has_a_row_in_the_table() -> None:
    """And leads to known phases."""
    assert set(TRANSITIONS) == {*get_args(Event)}
    rows = list(TRANSITIONS.values())
    assert {phase for row in rows for phases in [row, *row.values()] for phase in phases} == set(get_args(Phase))
    assert not any("ended" in row for row in rows)


def test_the_last_text_before_the_result_counts() -> None:
    """It is passed on with the result, and an empty one takes it back."""
    call = Call().start()
    assert call.receive(Content("first")) == []
    assert call.receive(Content("last")) == []
    assert call.receive(events.Result(1, b"1")) == [commands.Succeed(b"1", Content("last"))]
    call = Call().start()
    for text in ("first", ""):
        call.receive(Content(text))
    assert call.receive(events.Result(1, b"1")) == [commands.Succeed(b"1")]


def test_a_text_is_no_result() -> None:
    """The call goes on, also where it was searched, up to a result that may have no bytes."""
    call = Call().start()
    call.wait_for("searching")
    call.receive(Content("a text"))
    assert call.phase == "waiting"
    assert call.receive(events.Result(1, b""))[-1] == commands.Succeed(b"", Content("a text"))


def test_a_call_that_is_repeated_begins_without_a_text() -> None:
    """The instance that sent it is lost: the result is that of another execution, which may have no text."""
    call = Call(idempotent=True, heartbeat_s=0.5).start()
    call.receive(Content("of the lost instance"))
    call.wait_for("checking")
    call.receive(events.StatusConfirmed(call.now))
    assert call.sent() == 2
    assert call.receive(events.Result(9, b"1")) == [CANCEL, commands.Succeed(b"1")]
