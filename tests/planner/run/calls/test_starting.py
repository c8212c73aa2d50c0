"""Which calls wait for a person, what their messages carry afterwards, and which calls are made directly."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Observed, Paused, PlannedCall, Resumed, RunStarted, Step
from contracts.runs.pauses import ApprovalRule
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.records import Record
from services.planner.run.calls import starting
from services.planner.run.calls.starting import DirectRules
from services.planner.run.commands import Ack, Ask, Close, Dispatch
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run, waiting_calls
from tests.planner.run_world import RUN, World, calls, final, finished, started

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
    assert (pause.reason, pause.source, pause.tool, pause.call_id) == ("approval", "tool", "pay", "1-1")
    assert pause.rule is None
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


DIRECT = DirectRules("a" * 32, slow=frozenset({"slow"}))


def directly() -> World:
    """A world in which calls are made directly."""
    world = World()
    world.rules = replace(world.rules, direct=DIRECT)
    return world


def marks(sent: list[PlannedCall]) -> dict[str, str | None]:
    """Which calls name an instance."""
    return {call.call_id: call.direct for call in sent}


def test_the_record_of_a_call_names_the_instance() -> None:
    """Not where the tool is slow; and a call that waits for a place is marked once it gets one."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started(max_parallel=2))
    decision = replace(calls(), calls=(("work", {}), ("slow", {}), ("work", {})))
    moves = world.play(handling, decision)
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert marks(dispatch.calls) == {"1-1": DIRECT.instance, "1-2": None}
    assert marks([world.run.open["1-3"]]) == {"1-3": None}
    moves = world.play(world.handling("INBOX:1", finished("1-2")))
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert marks(dispatch.calls) == {"1-3": DIRECT.instance}


def test_outcomes_that_came_together_are_one_record() -> None:
    """With what follows from them: the handling goes on to the end of the run."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started())
    handling.carry_out(world.handle(handling, calls(2), until=Dispatch)[-1])
    handling.outcomes = (finished("1-1"), finished("1-2"))
    moves = world.play(handling, final("42"))
    assert [event.type for event in world.written[2]] == ["observed", "observed", "step", "asked"]
    assert handling.outcomes == ()
    assert [type(move) for move in moves] == [Ask, Close, Ack]


def test_outcomes_that_are_too_long_for_one_record_are_several() -> None:
    """None of them is shortened for it."""
    world = directly()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling, replace(calls(), calls=(("work", {}),) * 8))
    again = world.handling("INBOX:1", "resumed")
    again.outcomes = tuple(finished(f"1-{n}", artifacts={"chart": "x" * 128_000}) for n in range(1, 9))
    world.play(again)
    records = [[event for event in events if isinstance(event, Observed)] for events in world.written]
    assert [len(observed) for observed in records if observed] == [4, 4]
    assert all(len(Record(events=[*events]).model_dump_json()) <= MAX_RECORD_BYTES for events in world.written)


def test_another_handling_takes_a_direct_call_for_one_that_may_have_begun() -> None:
    """The record is the intent of the call."""
    world = directly()
    world.play(world.handling("REQUESTS:1", started=started()), calls())
    moves = world.play(world.handling("REQUESTS:1", holder="second", started=started()))
    [dispatch] = [move for move in moves if isinstance(move, Dispatch)]
    assert dispatch.again == {"1-1"}
    assert marks(dispatch.calls) == {"1-1": DIRECT.instance}
