"""What becomes of groups of background tasks: their end, their results, decisions and reports."""

from services.planner.tasks.commands import RequestReport, SetGroupTimer, SettleParent, StartTask
from tests.planner.tasks.task_world import World, busy, control, ended, run_id, spawned


def _reports(world: World) -> list[tuple[str, list[str], list[str]]]:
    return [(each.kind, each.tasks, each.failed) for each in world.of("reported")]


def test_a_task_without_a_group_is_reported_when_it_ends() -> None:
    """Its result is shown to later runs, and a report tells the user."""
    world = busy()

    assert world.take(spawned("r", "a")) == ["group_opened", "task_spawned", "group_sealed"]
    start, _answer, timer = world.commands
    assert isinstance(start, StartTask)
    assert start.request.run_id == run_id("a")
    assert world.answer() == {"task_id": run_id("a"), "status": "running"}
    assert isinstance(timer, SetGroupTimer)

    assert world.take(ended("a")) == ["task_ended", "results_merged", "group_ended", "reported"]
    assert [type(each) for each in world.commands] == [SettleParent, RequestReport]
    assert [each.digest for each in world.session.background.results] == ["result a"]
    assert _reports(world) == [("task", [run_id("a")], [])]


def test_a_group_is_reported_once_when_it_is_sealed_and_all_have_ended() -> None:
    """The end of the run that made it seals it; a failed task is named."""
    world = busy()
    world.take(spawned("r", "a", group="g"), spawned("r", "b", group="g"), ended("a"))
    assert _reports(world) == []

    world.take(ended("b", "error"))
    assert world.group("a").status == "open"
    assert world.take(ended("r")) == ["run_ended", "group_sealed", "group_ended", "reported"]

    assert world.group("a").status == "complete"
    assert _reports(world) == [("group", [run_id("a")], [run_id("b")])]


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
