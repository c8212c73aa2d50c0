"""When a run does nothing but wait for people."""

import pytest

from contracts.runs.events import (
    Asked,
    Called,
    InputAdded,
    ModelFailed,
    Observed,
    Paused,
    PlannedCall,
    Resumed,
    RunEvent,
    Step,
)
from contracts.wire.faults import Fault
from services.shared.runs.run_waits import waits_for_person

ASKED = Asked(turn=1, attempt=1, by="INBOX:1", holder="h")
STEP = Step(
    step=1,
    node="plan",
    status="started",
    calls=[PlannedCall(call_id="1-1", tool="pay"), PlannedCall(call_id="1-2", tool="look")],
)
FAILED = ModelFailed(
    turn=1, attempt=1, model="m", fault=Fault(code="model_failed", reason=""), then="retry", next_model="m"
)
BUDGET = Paused(budget="max_steps of 2", until=1)


def held(call: str | None, pause: str | None = None) -> Paused:
    """A pause of a call, or of the run itself."""
    return Paused(pause_id=pause or f"of {call}", call_id=call, until=1, reason="approval")


def outcome(call: str) -> Observed:
    """A call has ended."""
    return Observed(call_id=call, tool="t", status="succeeded")


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ([ASKED], False),
        ([ASKED, FAILED], False),
        ([ASKED, STEP], False),
        ([ASKED, STEP, held("1-1")], False),
        ([ASKED, STEP, held("1-1"), outcome("1-2")], True),
        ([ASKED, STEP, held("1-1"), held("1-2")], True),
        ([ASKED, STEP, held("1-1"), held("1-2"), Resumed(pause_id="of 1-1", decision="approve")], False),
        (
            [ASKED, STEP, held("1-1"), held("1-2"), Resumed(pause_id="of 1-1", decision="reject"), outcome("1-1")],
            True,
        ),
        ([ASKED, STEP, held("1-1"), outcome("1-2"), InputAdded(id="i")], True),
        ([ASKED, STEP, outcome("1-1"), outcome("1-2"), Called(step=1, by="x", calls=[], join=True)], False),
        ([ASKED, STEP, outcome("1-1"), outcome("1-2"), held("1-join")], True),
        ([ASKED, held(None)], True),
        ([ASKED, held(None), Resumed(pause_id="of None", decision="answer")], False),
        ([ASKED, BUDGET], True),
        ([ASKED, BUDGET, Resumed()], False),
        ([ASKED, BUDGET, ASKED], False),
    ],
)
def test_a_run_waits_when_nothing_else_goes_on(events: list[RunEvent], *, waits: bool) -> None:
    """No model is called, and every call that has no outcome is held by a pause."""
    assert waits_for_person(events) is waits
