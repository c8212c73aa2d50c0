"""Calls about background tasks: what a spawn records, when a person is asked, and the message to the session."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Observed, Paused
from contracts.sessions.tasks import Reservation, TaskPolicy
from services.planner.run.commands import Ack, Dispatch, Wake
from services.planner.run.turn.decision import Calls
from tests.planner.run.pause_world import sent
from tests.planner.run_world import final
from tests.planner.task_world import QUERY, TaskWorld, opening, spawn


def test_a_spawn_is_a_call_of_the_log() -> None:
    """It has its part of the limits, is dispatched, and the session's answer ends the step."""
    world = TaskWorld()
    moves = world.begin(opening(max_tokens=1100), spawn())
    [call] = world.written[-1][0].calls
    assert (world.written[-1][0].node, call.tool, call.call_id) == ("task", "task.spawn", "1-1")
    assert call.set_aside == Reservation(max_tokens=250)
    assert sent(moves) == ["1-1"]
    world.answer("1-1", observation={"task_id": "t"})
    assert world.types()[-3:] == ["observed", "step", "asked"]
    assert world.run.set_aside == {"1-1": Reservation(max_tokens=250)}


@pytest.mark.parametrize("limits", [{"max_tokens": 102}, {"max_cost_usd": 0.5}, {"max_tool_calls": 2}])
def test_too_little_is_left_to_set_aside(limits: dict[str, Any]) -> None:
    """The model learns it, and nothing is sent."""
    world = TaskWorld()
    moves = world.begin(opening(**limits), spawn())
    assert sent(moves) == []
    [observed] = world.of(Observed)
    assert observed.failure.code == "budget_exhausted"
    assert next(iter(limits)) in observed.failure.reason
    assert not world.run.set_aside
    assert world.run.concluded


def test_each_task_of_a_reply_has_its_part() -> None:
    """Of what the ones before it leave. The last ones are not spawned where nothing is left."""
    world = TaskWorld()
    decision = replace(spawn(), calls=(*spawn().calls, *spawn().calls, *spawn().calls))
    moves = world.begin(opening(max_tokens=500, max_tool_calls=9), decision)
    parts = [call.set_aside for call in world.written[-1][0].calls]
    assert [part.max_tokens for part in parts] == [100, 75, 56]
    assert [part.max_tool_calls for part in parts] == [1, 1, 1]
    assert sent(moves) == ["1-1", "1-2", "1-3"]
    world = TaskWorld()
    moves = world.begin(opening(max_tool_calls=8), decision)
    assert sent(moves) == ["1-1", "1-2"]
    assert [*world.run.set_aside] == ["1-1", "1-2"]
    failure = world.run.observed["1-3"].failure
    assert failure is not None
    assert failure.code == "budget_exhausted"


def test_a_failed_spawn_gives_its_part_back() -> None:
    """The task was refused."""
    world = TaskWorld()
    world.begin(opening(max_tokens=1100), spawn())
    world.answer("1-1", status="failed", observation=None, failure={"code": "too_many_tasks", "reason": "r"})
    assert not world.run.set_aside
    assert isinstance(world.settle("1-1", prompt_tokens=5)[-1], Ack)
    assert world.types()[-1] == "asked"


def test_a_settled_task_counts_once() -> None:
    """What it spent replaces what was set aside."""
    world = TaskWorld()
    world.begin(opening(max_tokens=1100), spawn())
    world.answer("1-1")
    for _ in range(2):
        world.settle("1-1", prompt_tokens=50, completion_tokens=20, tool_calls=1, model_calls=1, cost_usd=0.25)
    assert not world.run.set_aside
    assert world.types().count("task_settled") == 1
    spent = world.run.spent_by_tasks
    assert (spent.prompt_tokens, spent.tool_calls, spent.cost_usd) == (70, 1, 0.25)


def waiting(policy: TaskPolicy | None = None, **args: Any) -> tuple[TaskWorld, Paused]:
    world = TaskWorld()
    moves = world.begin(opening(policy or TaskPolicy()), spawn(**args))
    assert not any(isinstance(move, Dispatch) for move in moves)
    [pause] = world.pauses
    return world, pause


@pytest.mark.parametrize("policy", [TaskPolicy(), TaskPolicy(spawn_requires_confirmation=True)])
def test_a_person_is_asked_before_a_spawn(policy: TaskPolicy) -> None:
    """Where nothing is configured, too."""
    world, pause = waiting(policy)
    assert (pause.reason, pause.source, pause.tool, pause.default) == ("confirmation", "task", "task.spawn", "reject")
    assert pause.input_schema is not None
    assert [*pause.input_schema["properties"]] == ["approve", "retain_turn"]
    moves = world.decide(pause, "approve")
    assert any(isinstance(move, Wake) for move in moves)
    assert sent(world.wake()) == ["1-1"]
    assert world.run.open["1-1"].args == QUERY


@pytest.mark.parametrize(("decision", "fields"), [("reject", {}), ("answer", {"input": {"approve": False}})])
def test_a_rejected_spawn_is_a_failed_call(decision: str, fields: dict[str, Any]) -> None:
    """Nothing is sent, its part of the limits is free, and the model gets the note."""
    world, pause = waiting()
    world.decide(pause, decision, note="not now", **fields)
    moves = world.wake(final())
    assert sent(moves) == []
    [observed] = world.of(Observed)
    assert observed.failure.code == "rejected"
    assert "not now" in observed.failure.reason
    assert "this call of task," in observed.failure.reason
    assert not world.run.set_aside


@pytest.mark.parametrize("tool", ["tasks.apply", "tasks.reject"])
def test_a_model_only_passes_on_a_decision(tool: str) -> None:
    """Held results need a person, whatever the policy says. Other calls about tasks wait for nobody."""
    world = TaskWorld()
    decision = Calls(node="plan", calls=((tool, {"group_id": "g"}), ("tasks.list", {})))
    moves = world.begin(opening(), decision)
    assert sent(moves) == ["1-2"]
    [pause] = world.pauses
    assert (pause.reason, pause.source, pause.tool) == ("confirmation", "task", tool)
    world.decide(pause, "approve")
    assert sent(world.wake()) == ["1-1"]
