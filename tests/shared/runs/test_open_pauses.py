"""The open pauses of a run, from its log."""

from contracts.runs.events import Called, Cancelled, Paused, PlannedCall, Resumed, RunEvent, Step
from contracts.runs.payload import FinalPayload
from services.shared.runs.open_pauses import open_pauses

PAY, LOOK = (PlannedCall(call_id=f"1-{n}", tool=tool, args={"n": n}) for n, tool in enumerate(("pay", "look"), 1))
STEP = Step(step=1, node="plan", status="started", calls=[PAY, LOOK])


def paused(pause_id: str | None, **fields: object) -> Paused:
    """A pause of the first call."""
    given = {"pause_id": pause_id, "until": 9, "reason": "approval", "call_id": "1-1", "tool": "pay", "step": 1}
    return Paused.model_validate({**given, "arguments": {"n": 1}, "token": f"{pause_id}.1.d", **fields})


def ids(*events: RunEvent) -> list[str]:
    """The ids of the open pauses."""
    return [pause.pause_id for pause in open_pauses("r", events)]


def test_pauses_open_and_close_one_by_one() -> None:
    """A wait for a budget is not among them; the end closes all."""
    assert ids(STEP, paused("a"), paused("b")) == ["a", "b"]
    assert ids(STEP, paused("a"), paused("b"), paused(None, reason="budget"), Resumed(), Resumed(pause_id="a")) == ["b"]
    assert ids(STEP, paused("a"), Cancelled(payload=FinalPayload(raw_answer=""))) == []


def test_a_higher_revision_replaces_a_pause() -> None:
    """As after an edit that must be approved again."""
    (view,) = open_pauses("r", [STEP, paused("a"), paused("a", revision=2, arguments={"n": 7})])
    assert (view.revision, view.arguments, view.run_id, view.expires_at) == (2, {"n": 7}, "r", 9)


def test_a_plan_is_shown_whole() -> None:
    """With the join, once it is called."""
    join = Called(step=1, by="m", calls=[PlannedCall(call_id="1-join", tool="sum")], join=True)
    (view,) = open_pauses("r", [STEP, join, paused("a")])
    assert view.plan == [
        {"call_id": "1-1", "tool": "pay", "args": {"n": 1}},
        {"call_id": "1-2", "tool": "look", "args": {"n": 2}},
        {"call_id": "1-join", "tool": "sum", "args": {}},
    ]
    (alone,) = open_pauses("r", [STEP.model_copy(update={"calls": [PAY]}), paused("a")])
    assert alone.plan == []
