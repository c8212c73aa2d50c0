"""What a run waits for, from its log, and its status."""

from collections.abc import Iterable

import pytest

from contracts.runs import events as facts
from contracts.runs.events import RunEvent
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunRequested
from contracts.wire.faults import Fault
from services.shared.runs.waiting import MAX_QUERY_CHARACTERS, status_of, waiting_after

ASKED = facts.Asked(turn=1, attempt=1, by="INBOX:1", holder="h")
STEP = facts.Step(
    step=1,
    node="plan",
    status="started",
    calls=[facts.PlannedCall(call_id="1-1", tool="pay"), facts.PlannedCall(call_id="1-2", tool="look")],
)
FAILED = facts.ModelFailed(
    turn=1, attempt=1, model="m", fault=Fault(code="model_failed", reason=""), then="retry", next_model="m", retry_at=2
)
BUDGET = facts.Paused(budget="max_steps of 2", until=1)


def held(call: str | None, pause: str | None = None) -> facts.Paused:
    """A pause of a call, or of the run itself."""
    return facts.Paused(pause_id=pause or f"of {call}", call_id=call, until=1, reason="approval")


def outcome(call: str) -> facts.Observed:
    return facts.Observed(call_id=call, tool="t", status="succeeded")


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ([ASKED], False),
        ([ASKED, FAILED], False),
        ([ASKED, STEP], False),
        ([ASKED, STEP, held("1-1")], False),
        ([ASKED, STEP, held("1-1"), outcome("1-2")], True),
        ([ASKED, STEP, held("1-1"), held("1-2")], True),
        ([ASKED, STEP, held("1-1"), held("1-2"), facts.Resumed(pause_id="of 1-1", decision="approve")], False),
        (
            [
                ASKED,
                STEP,
                held("1-1"),
                held("1-2"),
                facts.Resumed(pause_id="of 1-1", decision="reject"),
                outcome("1-1"),
            ],
            True,
        ),
        ([ASKED, STEP, held("1-1"), outcome("1-2"), facts.InputAdded(id="i")], True),
        ([ASKED, STEP, outcome("1-1"), outcome("1-2"), facts.Called(step=1, by="x", calls=[], join=True)], False),
        ([ASKED, STEP, outcome("1-1"), outcome("1-2"), held("1-join")], True),
        ([ASKED, held(None)], True),
        ([ASKED, held(None), facts.Resumed(pause_id="of None", decision="answer")], False),
        ([ASKED, BUDGET], True),
        ([ASKED, BUDGET, facts.Resumed()], False),
        ([ASKED, BUDGET, ASKED], False),
    ],
)
def test_a_run_waits_when_nothing_else_goes_on(events: list[RunEvent], *, waits: bool) -> None:
    """No model is called, and every call that has no outcome is held by a pause."""
    assert waiting_after(events).is_for_person is waits


PAY, LOOK = (facts.PlannedCall(call_id=f"1-{n}", tool=tool, args={"n": n}) for n, tool in enumerate(("pay", "look"), 1))
TWO_CALLS = facts.Step(step=1, node="plan", status="started", calls=[PAY, LOOK])


def paused(pause_id: str | None, **fields: object) -> facts.Paused:
    """A pause of the first call."""
    given = {"pause_id": pause_id, "until": 9, "reason": "approval", "call_id": "1-1", "tool": "pay", "step": 1}
    return facts.Paused.model_validate({**given, "arguments": {"n": 1}, "token": f"{pause_id}.1.d", **fields})


def ids(*events: RunEvent) -> list[str]:
    return [pause.pause_id for pause in views(events)]


def views(events: Iterable[RunEvent]) -> list[OpenPause]:
    """The open pauses, as people see them."""
    return waiting_after(events).views("r")


def test_pauses_open_and_close_one_by_one() -> None:
    """A wait for a budget is not among them; the end closes all."""
    assert ids(TWO_CALLS, paused("a"), paused("b")) == ["a", "b"]
    assert ids(
        TWO_CALLS, paused("a"), paused("b"), paused(None, reason="budget"), facts.Resumed(), facts.Resumed(pause_id="a")
    ) == ["b"]
    assert ids(TWO_CALLS, paused("a"), facts.Cancelled(payload=FinalPayload(raw_answer=""))) == []


def test_a_plan_is_shown_whole() -> None:
    """With the join, once it is called."""
    join = facts.Called(step=1, by="m", calls=[facts.PlannedCall(call_id="1-join", tool="sum")], join=True)
    (view,) = views([TWO_CALLS, join, paused("a")])
    assert view.plan == [
        {"call_id": "1-1", "tool": "pay", "args": {"n": 1}},
        {"call_id": "1-2", "tool": "look", "args": {"n": 2}},
        {"call_id": "1-join", "tool": "sum", "args": {}},
    ]
    (alone,) = views([TWO_CALLS.model_copy(update={"calls": [PAY]}), paused("a")])
    assert alone.plan == []


REQUEST = RunRequested(run_id="0" * 32, tenant="t", requested_at=1, trace_id="0" * 32, query="q" * 1000, agent="a")
PAYLOAD = FinalPayload(raw_answer="")
ENDS: list[tuple[facts.Terminal, str, str, str | None]] = [
    (facts.Done(raw_answer="", reason="budget_exhausted"), "done", "budget_exhausted", None),
    (facts.Error(error="e", code="model_failed", trace_id="0" * 32, payload=PAYLOAD), "error", "error", "model_failed"),
    (facts.Cancelled(reason="enough", payload=PAYLOAD), "cancelled", "cancelled", None),
]


@pytest.mark.parametrize(("end", "status", "reason", "code"), ENDS)
def test_an_ended_run_has_the_status_of_its_end(
    end: facts.Terminal, status: str, reason: str, code: str | None
) -> None:
    """With the reason, and the code of an error."""
    found = status_of(REQUEST.run_id, REQUEST, end, state="running", started_at=2, ended_at=3)
    assert (found.status, found.reason, found.code, found.ended_at) == (status, reason, code, 3)
    assert (found.agent, len(found.query)) == ("a", MAX_QUERY_CHARACTERS)


def test_the_status_of_a_task_names_the_run_that_spawned_it() -> None:
    """And why it exists."""
    request = REQUEST.model_copy(update={"cause": "job", "parent": "2" * 32})
    found = status_of(request.run_id, request, None, state="running", started_at=None, ended_at=None)
    assert (found.cause, found.parent) == ("job", "2" * 32)
