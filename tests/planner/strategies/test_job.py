"""Jobs: one call of a tool, whose result is the answer."""

from typing import Any

import pytest

from contracts.runs.events import RunStarted
from contracts.runs.requests import JobRequested
from contracts.sessions.records import MAX_TURN_BYTES
from services.planner.run.commands import Rules
from services.planner.strategies.registry import Job
from tests.planner.run.pause_world import PauseWorld, sent
from tests.planner.run_world import finished, started

RULES = Rules(strategy=Job())


def job(**changes: Any) -> RunStarted:
    begun = started(**changes.pop("limits", {}))
    request = begun.request.model_copy(
        update={"cause": "job", "job": JobRequested(tool="work", args={"n": 1}), "limits": {}}
    )
    return begun.model_copy(update={"request": request, **changes})


def played(begun: RunStarted) -> tuple[PauseWorld, list[str]]:
    """The run has begun; and the calls that were sent."""
    world = PauseWorld(rules=RULES)
    return world, sent(world.begin(begun))


@pytest.mark.parametrize(
    ("observation", "text"),
    [("found it", "found it"), ({"a": 1}, '{"a":1}'), ([1, 2], "[1,2]"), (None, "null"), ("", '""'), (7, "7")],
)
def test_the_result_is_the_answer(observation: Any, text: str) -> None:
    """As JSON, unless it is a text. The artifacts are those of the call; no model is asked."""
    world, calls = played(job())
    assert calls == ["1-1"]
    outcome = finished("1-1", observation=observation, artifacts={"chart": {"x": 1}})
    world.handle(world.next_handling(outcome))
    end: Any = world.run.terminal
    assert (end.type, end.reason, end.raw_answer) == ("done", "answer_complete", text)
    assert end.artifacts == {"work": {"chart": {"x": 1}}}
    assert end.usage.tool_calls == 1
    assert "asked" not in world.types()


def test_a_long_result_is_cut() -> None:
    """To what a session keeps of an answer."""
    world, _ = played(job())
    outcome = finished("1-1", observation="x" * 20_000)
    world.handle(world.next_handling(outcome))
    end: Any = world.run.terminal
    assert len(end.raw_answer.encode()) <= MAX_TURN_BYTES


def test_a_failed_call_ends_the_run_with_its_code() -> None:
    """As an error."""
    world, _ = played(job())
    fault = {"code": "tool_timed_out", "reason": "too slow"}
    outcome = finished("1-1", status="failed", observation=None, failure=fault)
    world.handle(world.next_handling(outcome))
    end: Any = world.run.terminal
    assert (end.type, end.code, end.error) == ("error", "tool_timed_out", "too slow")


@pytest.mark.parametrize(("decision", "code"), [("approve", None), ("reject", "rejected")])
def test_its_call_may_need_an_approval(decision: str, code: str | None) -> None:
    """As any other."""
    world, calls = played(job(approvals=["work"]))
    assert calls == []
    [pause] = world.pauses
    world.decide(pause, decision)
    moves = world.wake()
    assert sent(moves) == ([] if code else ["1-1"])
    end: Any = world.run.terminal
    assert (end.code if end else None) == code


def test_without_a_call_to_spend() -> None:
    """Nothing is called."""
    world, calls = played(job(limits={"max_tool_calls": 0}))
    end: Any = world.run.terminal
    assert (calls, end.reason) == ([], "budget_exhausted")
