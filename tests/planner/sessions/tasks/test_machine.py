"""What becomes of groups of background tasks: what joins them, their end, their results, decisions and reports."""

from typing import Any

import pytest

from contracts.sessions.tasks import SessionGroupDue, TaskPolicy
from services.planner.sessions.decide import Received
from services.planner.sessions.tasks import machine
from tests.planner.sessions.tasks.session_world import World, busy, called, control, ended, run_id, spawned, table


def _reports(world: World) -> list[tuple[str, list[str], list[str]]]:
    return [(each.kind, each.tasks, each.failed) for each in world.of("reported")]


def test_held_results_are_applied_once_and_then_reported() -> None:
    """A decision before the end is refused; the same one later changes nothing; another one is refused."""
    world = busy()
    world.take(spawned("r", "a", group="g", group_sealed=True, merge_strategy="HUMAN_GATED"))
    assert world.take(control("apply", group="a", id_="early")) == ["task_control_refused"]
    world.take(ended("a"))
    assert _reports(world) == []
    assert world.session.background.results == []

    assert world.take(control("apply", group="a")) == ["results_merged", "reported", "task_control_done"]
    assert world.take(control("apply", group="a")) == []
    assert world.take(control("apply", group="a", id_="again")) == ["task_control_done"]
    assert world.take(control("reject", group="a")) == ["task_control_refused"]
    assert [each.digest for each in world.session.background.results] == ["result a"]


CAUSES = {
    "spawn": (spawned("r", "c", group_id=run_id("a")), spawned("r", "d", group="g", group_sealed=True)),
    "seal": (control("seal", group="a"), called("r", "seal", "x", group_id=run_id("a"))),
    "a task ends": (ended("a"), ended("a", "error"), ended("a", "cancelled")),
    "cancel": (control("cancel", group="a"), called("r", "cancel", "x", group_id=run_id("a"))),
    "its run ends": (ended("r"), ended("r", "cancelled")),
    "time-out": (SessionGroupDue(group_id=run_id("a"), what="group"),),
    "apply, reject": (control("apply", group="a"), control("reject", group="a")),
}


TABLE = table(machine.__doc__ or "", "what happens | open")


def _with_group(state: str) -> list[World]:
    """Sessions with a group in this state, whose tasks are going on, have succeeded or have failed."""
    ends: dict[str, list[tuple[str, ...]]] = {
        "open": [("", ""), ("done", "done"), ("error", "error")],
        "sealed": [("", ""), ("", "done"), ("", "error")],
        "complete": [("done", "error")],
        "failed": [("error", "cancelled")],
    }
    found = []
    for outcomes in ends[state]:
        world = busy()
        world.take(spawned("r", "a", group="g", merge_strategy="HUMAN_GATED"))
        world.take(spawned("r", "b", group="g", group_sealed=state != "open"))
        world.take(*(ended(task, outcome) for task, outcome in zip("ab", outcomes, strict=True) if outcome))
        assert world.group("a").status == state
        found.append(world)
    return found


@pytest.mark.parametrize("cause", CAUSES)
def test_groups_change_as_the_table_says(cause: str) -> None:
    """Each state that it names is reached, and no other one."""
    assert {name for name, _state in TABLE} == set(CAUSES)
    for state in ("open", "sealed", "complete", "failed"):
        reached = set()
        for message in CAUSES[cause]:
            for world in _with_group(state):
                world.take(message)
                reached.add(world.group("a").status)
        assert reached == {*TABLE.get((cause, state), state).split(", ")}, state


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (control("apply", group="a"), "nothing_held"),
        (control("apply", task="gated"), "task_in_group"),
        (control("cancel", task="b"), "already_ended"),
        (control("cancel", group="gated"), "already_ended"),
        (control("cancel", task="unknown"), "task_not_found"),
        (control("seal", group="unknown"), "group_not_found"),
        (control("apply", group="alone"), "group_not_found"),
    ],
)
def test_a_request_that_makes_no_sense_changes_nothing(message: Received, code: str) -> None:
    """It is recorded, so that the requester gets the reason."""
    world = busy()
    world.take(spawned("r", "a", group="g"), spawned("r", "b", group="g"), ended("b"), spawned("r", "alone"))
    world.take(spawned("r", "gated", group="h", group_sealed=True, merge_strategy="HUMAN_GATED"), ended("gated"))
    assert world.take(message) == ["task_control_refused"]
    assert world.of("task_control_refused")[0].fault.code == code


def test_an_answer_at_the_end_of_a_budget_is_a_result() -> None:
    """An end without an answer is not."""
    world = busy()
    for task, reason, answer in (
        ("a", "budget_exhausted", "so far"),
        ("b", "budget_exhausted", ""),
        ("c", "no_path", "?"),
    ):
        world.take(spawned("r", task), ended(task, answer=answer, reason=reason))
    assert [(each.outcome, each.code) for each in world.of("task_ended")] == [
        ("partial", "budget_exhausted"),
        ("failed", "budget_exhausted"),
        ("failed", "no_path"),
    ]


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
