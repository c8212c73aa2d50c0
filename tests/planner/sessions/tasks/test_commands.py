"""What follows from the tasks of a session."""

from contracts.sessions.tasks import Reservation, SessionGroupDue
from services.planner.sessions.tasks.commands import (
    CancelTask,
    DropReportContext,
    RequestReport,
    SetGroupTimer,
    SettleParent,
    StartTask,
)
from tests.planner.sessions.tasks.session_world import AT, POLICY, World, busy, control, ended, run_id, spawned


def _cancelled(world: World) -> list[str]:
    return [each.task_id for each in world.commands if isinstance(each, CancelTask)]


def test_a_redelivery_repeats_the_commands() -> None:
    """The message changes nothing the second time."""
    world = busy()
    for cause in (
        spawned("r", "a", group="g", retain_turn=True),
        spawned("r", "b", merge_strategy="HUMAN_GATED"),
        spawned("r", "c", group="h"),
        control("cancel", task="c"),
        ended("c", "cancelled"),
        ended("b"),
        ended("a"),
        control("apply", task="b"),
        ended("r"),
    ):
        assert world.take(cause)
        first = world.commands
        assert world.take(cause) == []
        assert world.commands == first


def test_a_time_out_cancels_what_is_open_and_reports_what_there_is() -> None:
    """The timer of a group is set with its first task."""
    world = busy()
    world.take(spawned("r", "a", group="g"))
    assert SetGroupTimer("group", run_id("a"), AT + round(POLICY.group_timeout_s * 1000)) in world.commands
    world.take(spawned("r", "b", group="g"), ended("a"), SessionGroupDue(group_id=run_id("a"), what="group"))
    assert _cancelled(world) == [run_id("b")]
    world.take(ended("b", "cancelled"))
    assert [(each.tasks, each.failed) for each in world.of("reported")] == [([run_id("a")], [run_id("b")])]


def test_a_run_that_has_waited_long_enough_goes_on_and_the_report_follows() -> None:
    """Its answer says so, with the results so far."""
    world = busy()
    world.take(spawned("r", "a", retain_turn=True), SessionGroupDue(group_id=run_id("a"), what="waiter"))
    assert world.answer()["timed_out"] is True
    world.take(ended("a"))
    assert [type(each) for each in world.commands] == [SettleParent, RequestReport]


def test_a_parent_does_not_get_back_what_is_kept_for_the_report() -> None:
    """Unless no report is to come: its run waits for the task itself, or asked for none."""
    kept = {"for_report": Reservation(max_tokens=40, max_cost_usd=0.5, max_tool_calls=1)}
    for asked, more in (({}, 40), ({"retain_turn": True}, 0), ({"group_report": "none"}, 0)):
        world = busy()
        world.take(spawned("r", "a", **asked).model_copy(update=kept), ended("a"))
        (settled,) = [each for each in world.commands if isinstance(each, SettleParent)]
        assert (settled.spent.prompt_tokens, settled.spent.tool_calls) == (10 + more, more // 40)
        assert settled.spent.cost_usd == (0.51 if more else 0.01)
        assert world.of("task_ended")[0].spent == settled.spent


def test_the_context_kept_for_a_report_is_dropped_when_none_comes() -> None:
    """It is kept under the report's id, from the request of the first task."""
    world = busy()
    world.take(spawned("r", "a", merge_strategy="HUMAN_GATED"))
    (start,) = [each for each in world.commands if isinstance(each, StartTask)]
    world.take(ended("a"), control("reject", task="a"))
    assert world.commands == [DropReportContext(str(start.report_id))]


def test_a_task_that_was_cancelled_before_its_request_was_sent_is_requested_and_cancelled() -> None:
    """Else its group would wait for ever for a run that never began."""
    world = busy()
    call = spawned("r", "a")
    world.take(call, control("cancel", task="a"), call)
    assert [type(each).__name__ for each in world.commands][:3] == ["StartTask", "AnswerCall", "CancelTask"]
