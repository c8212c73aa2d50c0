"""Spawning tasks: which group a task joins, and what is refused."""

import pytest

from contracts.sessions.tasks import TaskPolicy
from services.planner.sessions.tasks import spawning
from tests.planner.sessions.tasks.session_world import busy, called, ended, request, run_id, spawned


def test_the_name_of_a_group_counts_within_one_run() -> None:
    """Its id counts in every run of the session."""
    world = busy("r")
    world.take(request("q"), spawned("r", "a", group="g"), spawned("r", "b", group=" g "))
    world.take(spawned("q", "c", group="g"), spawned("q", "d", group_id=run_id("a")))

    assert world.group("a").tasks == [run_id("a"), run_id("b"), run_id("d")]
    assert world.group("c").tasks == [run_id("c")]


def test_the_settings_of_a_group_are_those_of_its_first_task() -> None:
    """The group's strategy is the task's unless the spawn says otherwise."""
    world = busy()
    world.take(spawned("r", "a", group="g", merge_strategy="REPLACE", group_report="any"))
    world.take(spawned("r", "b", group="g", merge_strategy="HUMAN_GATED", group_report="none"))
    world.take(spawned("r", "c", group="h", merge_strategy="REPLACE", group_merge_strategy="APPEND"))

    assert (world.group("a").merge, world.group("a").report) == ("REPLACE", "any")
    assert world.group("c").merge == "APPEND"


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


def test_a_run_that_has_ended_spawns_nothing() -> None:
    """Nor does one of another session."""
    world = busy()
    world.take(ended("r"))
    for call in (spawned("r", "a"), spawned("stranger", "b")):
        assert world.take(call) == []
        assert world.answer() == "not_found"


def test_the_requests_of_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with the same settings share one; many different ones are refused."""
    monkeypatch.setattr(spawning, "MAX_REPORT_AS_BYTES", 900)
    world = busy()
    for number in range(20):
        world.take(spawned("r", f"a{number}", child={"key_tools": ["search"]}))
    assert len(world.session.background.report_as) == 1
    world.take(spawned("r", "b", child={"key_tools": ["x" * 64] * 20}))
    assert world.answer() == "too_many_tasks"


def test_texts_of_many_tasks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long query is cut."""
    monkeypatch.setattr(spawning, "MAX_TEXTS_BYTES", 300)
    world = busy()
    for name in ("a", "b"):
        world.take(spawned("r", name, child={"query": "word " * 100}))
    queries = [task.query for task in world.session.background.tasks.values()]
    assert len(queries[0].encode()) <= spawning.MAX_QUERY_BYTES
    assert queries[1] == ""


def test_a_job_names_its_tool() -> None:
    """Its query says nothing: a job asks no model."""
    world = busy()
    world.take(spawned("r", "a", child={"cause": "job", "job": {"tool": "search", "args": {"q": "x"}}}))
    task = world.session.background.tasks[run_id("a")]
    assert (task.mode, task.tool, task.query) == ("job", "search", "")
    assert called("r", "status", "c", task_id=task.task_id).action == "status"
