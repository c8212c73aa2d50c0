"""What follows from the tasks of a session."""

from contracts.sessions.tasks import SessionGroupDue
from services.planner.sessions.tasks import commands
from tests.planner.sessions.tasks.session_world import AT, POLICY, busy, control, ended, run_id, spawned


def test_a_time_out_cancels_what_is_open_and_reports_what_there_is() -> None:
    """The timer of a group is set with its first task."""
    world = busy()
    world.take(spawned("r", "a", group="g"))
    assert commands.SetGroupTimer("group", run_id("a"), AT + round(POLICY.group_timeout_s * 1000)) in world.commands
    world.take(spawned("r", "b", group="g"), ended("a"), SessionGroupDue(group_id=run_id("a"), what="group"))
    cancels = [each for each in world.commands if isinstance(each, commands.CancelTask)]
    assert cancels == [commands.CancelTask(run_id("b"))]
    world.take(ended("b", "cancelled"))
    assert [(each.tasks, each.failed) for each in world.of("reported")] == [([run_id("a")], [run_id("b")])]


def test_a_run_that_has_waited_long_enough_goes_on_and_the_report_follows() -> None:
    """Its answer says so, with the results so far."""
    world = busy()
    world.take(spawned("r", "a", retain_turn=True), SessionGroupDue(group_id=run_id("a"), what="waiter"))
    assert world.answer()["timed_out"] is True
    world.take(ended("a"))
    assert [type(each) for each in world.commands] == [commands.TellRun, commands.RequestReport]


def test_a_task_that_was_cancelled_before_its_request_was_sent_is_requested_and_cancelled() -> None:
    """Else its group would wait for ever for a run that never began."""
    world = busy()
    call = spawned("r", "a")
    world.take(call, control("cancel", task="a"), call)
    assert [type(each).__name__ for each in world.commands][:3] == ["StartTask", "AnswerCall", "CancelTask"]
