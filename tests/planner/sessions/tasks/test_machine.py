"""What becomes of groups of background tasks: their end, their results, decisions and reports."""

from pathlib import Path

import pytest

from contracts.sessions.tasks import SessionGroupDue
from services.planner.sessions.decide import Received
from services.planner.sessions.tasks import machine
from tests.planner.sessions.tasks.session_world import World, busy, called, control, ended, run_id, spawned


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


GROUPS = Path(__file__).resolve().parents[4] / "docs" / "rules" / "groups.md"


def _table(text: str) -> dict[tuple[str, str], set[str]]:
    """What may become of a group: cause and state -> states."""
    table = text[text.index("| what happens |") :].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    states = lines[0][1:]
    return {
        (cells[0], state): set(cell.split(", "))
        for cells in lines[2:]
        for state, cell in zip(states, cells[1:], strict=True)
    }


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
    table = _table(str(machine.__doc__))
    assert _table(GROUPS.read_text(encoding="utf-8")) == table
    assert {name for name, _state in table} == set(CAUSES)
    for state in ("open", "sealed", "complete", "failed"):
        reached = set()
        for message in CAUSES[cause]:
            for world in _with_group(state):
                world.take(message)
                reached.add(world.group("a").status)
        assert reached == table.get((cause, state), {state}), state


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
