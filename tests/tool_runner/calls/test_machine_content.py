"""The text that a tool sends beside its result, without a server: one event at a time."""

import pytest

from contracts.tools.messages import ToolFailure
from services.tool_runner.calls import commands, events
from services.tool_runner.calls.commands import Command
from services.tool_runner.calls.events import Content, Event
from tests.tool_runner.driven_call import CANCEL, Call


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


def test_a_text_is_a_sign_of_life() -> None:
    """It restarts `timeout_s`, and ends a search."""
    call = Call(timeout_s=2.0).start()
    call.at(1.0, Content("a text"))
    assert call.machine.alarm_at == 3.0
    call.wait_for("searching")
    call.receive(Content("a text"))
    assert call.phase == "waiting"


def test_a_text_is_no_result() -> None:
    """The call goes on, up to a result that may have no bytes."""
    call = Call().start()
    call.receive(Content("a text"))
    assert call.phase == "waiting"
    assert call.receive(events.Result(1, b"")) == [commands.Succeed(b"", Content("a text"))]


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (events.Failure(ToolFailure(reason="no paper")), commands.Fail),
        (events.Pause(b"{}"), commands.Pause),
        (events.RunEnded(), commands.Abandon),
        (events.Flood(), commands.Fail),
    ],
)
def test_only_a_result_has_a_text(ending: Event, kind: type[Command]) -> None:
    """A failure has its reason, and the next round of a pause sends its own."""
    call = Call().start()
    call.receive(Content("a text"))
    assert isinstance(call.receive(ending)[-1], kind)


def test_a_call_that_is_repeated_begins_without_a_text() -> None:
    """The instance that sent it is lost: the result is that of another execution, which may have no text."""
    call = Call(idempotent=True, heartbeat_s=0.5).start()
    call.receive(Content("of the lost instance"))
    call.wait_for("checking")
    call.receive(events.StatusConfirmed(call.now))
    assert call.sent() == 2
    assert call.receive(events.Result(9, b"1")) == [CANCEL, commands.Succeed(b"1")]
