"""The requests of runs that report on background tasks."""

from contracts.sessions.tasks import Reservation
from services.planner.sessions.tasks.reports import report_request
from tests.planner.sessions.tasks.session_world import busy, ended, spawned


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
