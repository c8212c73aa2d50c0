"""Which calls of a record wait for a person, and what their messages carry afterwards."""

from typing import Any

import pytest

from contracts.runs.events import Paused, PlannedCall, Resumed, RunStarted, Step
from contracts.runs.pauses import ApprovalRule
from services.planner.run.calls import starting
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run, waiting_calls
from tests.planner.run_world import RUN, started

PAY, LOOK = PlannedCall(call_id="1-1", tool="pay", args={"sum": 5}), PlannedCall(call_id="1-2", tool="look")
STEP = Step(step=1, node="plan", status="started", by="m", calls=[PAY, LOOK])
DAY_MS = 86_400_000


def opened(*rules: ApprovalRule, needing: tuple[str, ...] = (), **limits: Any) -> Run:
    """A run with these rules, whose step has two calls."""
    run = Run()
    facts: dict[str, Any] = {"approvals": [*needing], "approval_rules": [*rules], "tools": {"pay": "d" * 24}}
    begun: RunStarted = started(**limits).model_copy(update=facts)
    fold(run, 1, 1000, [begun])
    return run


def held(run: Run) -> list[Paused]:
    return starting.held(run, 2000, 1, [PAY, LOOK])


def test_a_tool_that_requires_approval_waits_for_a_week() -> None:
    """Its pause says what waits."""
    [pause] = held(opened(needing=("pay",)))
    assert (pause.reason, pause.source, pause.tool, pause.call_id, pause.rule) == (
        "approval",
        "tool",
        "pay",
        "1-1",
        None,
    )
    assert (pause.arguments, pause.step, pause.until, pause.default) == ({"sum": 5}, 1, 2000 + 7 * DAY_MS, "reject")
    assert pause.token == f"{pause.pause_id}.1.{pause.digest[:32]}"


def test_a_rule_that_asks_once_per_session() -> None:
    """It is approved for the tool alone, and the message of a further call carries the digest of that call."""
    rule = ApprovalRule(name="once", tools=["*"], ask="once_per_session")
    run = opened(rule)
    run.pause_decisions.approved_rules.add(("once", "pay"))
    assert [pause.tool for pause in held(run)] == ["look"]
    given = starting.approval_of(run, PAY)
    assert given is not None
    assert (given.digest, given.pause_id) == (starting.digest_of(run, PAY), None)
    assert starting.approval_of(run, LOOK) is None


@pytest.mark.parametrize("max_parallel", [1, 8])
def test_a_held_call_takes_no_place(max_parallel: int) -> None:
    """It is not owned by a message, and the other call is."""
    run = opened(needing=("pay",), max_parallel=max_parallel)
    fold(run, 2, 2000, [STEP, *held(run)])
    assert "1-1" not in run.owner
    assert [call.tool for call in waiting_calls(run)] == ([] if max_parallel > 1 else ["look"])


def test_an_approved_call_carries_what_was_approved() -> None:
    """It waits for a place then, as any other call. An edit replaces its arguments."""
    run = opened(needing=("pay",))
    [pause] = held(run)
    fold(run, 2, 2000, [STEP, pause])
    edited = PAY.model_copy(update={"args": {"sum": 3}})
    digest = starting.digest_of(run, edited)
    fold(run, 3, 3000, [Resumed(pause_id=pause.pause_id, decision="edit", arguments={"sum": 3}, digest=digest)])
    assert waiting_calls(run) == [edited]
    given = starting.approval_of(run, edited)
    assert given is not None
    assert (given.digest, given.pause_id, given.revision) == (digest, pause.pause_id, 1)
    assert run.pauses == {}
    assert RUN not in pause.token
