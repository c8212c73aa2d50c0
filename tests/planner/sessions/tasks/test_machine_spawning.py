"""Spawning tasks: which group a task joins, and what is refused."""

from typing import Any

import pytest

from contracts.sessions.tasks import TaskPolicy
from services.planner.sessions.tasks import machine
from tests.planner.sessions.tasks.session_world import busy, run_id, spawned


@pytest.mark.parametrize(
    ("code", "policy", "child", "args"),
    [
        ("group_not_found", {}, {}, {"group_id": "f" * 32}),
        ("group_not_found", {}, {}, {"group_id": run_id("alone")}),
        ("group_not_joinable", {}, {}, {"group_id": run_id("sealed")}),
        ("too_many_tasks", {"max_open": 2}, {}, {}),
        ("too_many_tasks", {"max_per_run": 2}, {}, {}),
        ("too_deep", {"max_depth": 1}, {"depth": 2}, {}),
        ("too_many_hops", {"max_hops": 1}, {"hops": 1}, {}),
    ],
)
def test_a_refused_spawn_leaves_nothing_behind(
    code: str, policy: dict[str, int], child: dict[str, int], args: dict[str, str]
) -> None:
    """The model gets the code, and gets it again when the message is repeated."""
    world = busy()
    world.take(spawned("r", "alone"), spawned("r", "sealed", group="g", group_sealed=True))
    before = world.session.background
    call = spawned("r", "x", policy=TaskPolicy.model_validate(policy), child=child, **args)

    assert world.take(call) == ["spawn_refused"]
    assert world.answer() == code
    assert world.take(call) == []
    assert world.answer() == code
    after = world.session.background
    assert (after.tasks, after.groups, after.spawned) == (before.tasks, before.groups, before.spawned)


def test_the_requests_of_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with the same settings share one; many different ones are refused."""
    monkeypatch.setattr(machine, "MAX_REPORT_AS_BYTES", 900)
    world = busy()
    for number in range(20):
        world.take(spawned("r", f"a{number}", child={"key_tools": ["search"]}))
    assert len(world.session.background.report_as) == 1
    world.take(spawned("r", "b", child={"key_tools": ["x" * 64] * 20}))
    assert world.answer() == "too_many_tasks"


@pytest.mark.parametrize("policy", ["APPEND", "REPLACE", "HUMAN_GATED"])
@pytest.mark.parametrize("field", ["merge_strategy", "group_merge_strategy"])
@pytest.mark.parametrize("chosen", ["APPEND", "REPLACE", "HUMAN_GATED"])
def test_a_model_may_gate_results_and_not_open_a_gate(policy: str, field: str, chosen: str) -> None:
    """Nor by a group that another agent has made without one."""
    world = busy()
    of_agent = TaskPolicy.model_validate({"merge_strategy": policy})
    args: dict[str, Any] = {field: chosen}
    world.take(spawned("r", "a", policy=of_agent, group="g", **args))
    wanted = policy if policy == "HUMAN_GATED" else chosen
    assert world.session.background.groups[run_id("a")].merge == wanted

    joining = spawned("r", "b", policy=TaskPolicy(merge_strategy="HUMAN_GATED"), group_id=run_id("a"))
    assert world.take(joining) == (["task_spawned"] if wanted == "HUMAN_GATED" else ["spawn_refused"])
