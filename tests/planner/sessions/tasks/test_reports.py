"""Runs that report on background tasks, and what a model reads as the outcome of its calls about tasks."""

from contracts.sessions.tasks import Reservation
from services.planner.sessions.tasks.reports import dropped_task, report_request
from services.shared.sessions.state import group_view
from tests.planner.sessions.tasks.session_world import busy, called, control, ended, run_id, spawned


def test_a_report_has_the_settings_of_the_run_that_spawned_the_task() -> None:
    """It is one hop further, and what the tasks found is data."""
    world = busy()
    child = {"tools": ["other"], "key_id": "key", "limits": {"max_tokens": 5}, "agent": "clerk", "request_id": "req-1"}
    first, second = spawned("r", "a", group="g", child=child), spawned("r", "b", group="g", group_sealed=True)
    kept = {"for_report": Reservation(max_tokens=20, max_tool_calls=1)}
    world.take(first.model_copy(update=kept), second.model_copy(update=kept))
    world.take(ended("a"), ended("b", "error"))
    (report,) = world.session.background.reports

    found = report_request("default", world.session, report, {"secret": 1})
    assert found is not None
    assert (found.cause, found.hops, found.tools) == ("report", 1, ["search"])
    assert (found.key_id, found.agent, found.request_id) == ("key", "clerk", "req-1")
    assert found.limits == {"max_tokens": 40, "max_tool_calls": 2}
    assert found.tool_context == {"secret": 1}
    assert [each["status"] for each in found.llm_context["background_tasks"]] == ["succeeded", "failed"]
    assert "result a" not in found.query

    world.take(found)
    assert world.session.background.reports == []
    assert world.session.queued(report.report_id) is not None


def test_a_status_of_a_dropped_task_needs_the_log() -> None:
    """Or of one whose result was dropped."""
    world = busy()
    world.take(spawned("r", "a"), spawned("r", "b"), ended("a"))
    for task, found in (("a", None), ("b", None), ("c", run_id("c"))):
        assert dropped_task(world.session, called("r", "status", "c", task_id=run_id(task))) == found


def test_a_model_is_not_shown_what_a_person_has_not_applied() -> None:
    """Neither by asking, nor by waiting until its time is over, nor once a person has rejected it."""
    world = busy()
    world.take(spawned("r", "a", merge_strategy="HUMAN_GATED", retain_turn=True), ended("a"))
    world.take(called("r", "status", "c", task_id=run_id("a")))
    assert "result" not in world.answer()
    world.take(control("reject", task="a"))
    assert "result" not in world.answer()["results"][0]
    world.take(called("r", "status", "d", task_id=run_id("a")))
    assert "result" not in world.answer()


def test_what_did_not_simply_succeed_is_said() -> None:
    """A task that ran out of its share; and a group that a person cancels while its task goes on."""
    world = busy()
    world.take(spawned("r", "a", group="g"), spawned("r", "b", group="g", retain_turn=True))
    world.take(ended("a", reason="budget_exhausted", answer="so far"), control("cancel", group="a"))
    answer = world.answer()
    assert (answer["status"], answer["timed_out"]) == ("cancelled", False)
    assert [(each["status"], each.get("code")) for each in answer["results"]] == [
        ("partial", "budget_exhausted"),
        ("cancelled", None),
    ]
    world.take(ended("b", "cancelled"))
    (group,) = world.session.background.groups.values()
    assert (group_view(world.session, group).status, group_view(world.session, group).partial) == (
        "complete",
        [run_id("a")],
    )
