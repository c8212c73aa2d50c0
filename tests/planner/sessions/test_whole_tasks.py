"""Background tasks over a real server: runs spawn them, their session knows them, and other runs report on them."""

from contracts.ids import new_id
from tests.planner.conftest import Plan
from tests.planner.sessions.task_scripts import (
    HOST,
    PARENT,
    REPORT,
    control,
    events_of,
    of_type,
    scripted,
    settled,
    spawn,
)
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.session_logs import session_of
from tests.support.waiting import wait_until

SLOW = Say(text=answer("Late.").text, delay_s=0.5)
ENDLESS = Say(silent=True)


async def test_a_task_is_reported_on(plan: Plan, provider: ModelServer) -> None:
    """Its run answers by itself, and then a run of the session tells the user, with the result in its context."""
    planner, session_id = await plan(agents=HOST), new_id()
    scripted(provider, spawn("a"), answer("It has begun."), a=answer("Found in a."))
    story = await planner.tell(PARENT, agent="host", session_id=session_id, tool_context={"secret": "s3"})
    assert story.end.raw_answer == "It has begun."
    session = await settled(planner.bus, session_id, reports=1)

    (spawned,) = await of_type(planner.bus, session_id, "task_spawned")
    (reported,) = await of_type(planner.bus, session_id, "reported")
    child, report = await planner.ended(spawned.task_id), await planner.ended(reported.report_id)
    assert child.end.raw_answer == "Found in a."
    (begun,) = child.of("run_started")
    assert (begun.request.cause, begun.request.parent, begun.request.session_id) == ("task", story.run, session_id)
    (reports,) = report.of("run_started")
    assert (reports.request.cause, reports.request.hops, reports.has_tool_context) == ("report", 1, True)
    assert [turn.run for turn in session.turns] == [story.run, report.run]
    assert REPORT in session.turns[1].question
    assert session.turns[1].answer == "All of it is done."
    (asked,) = [seen.text for seen in provider.ledger if REPORT in seen.text]
    assert "Found in a." in asked
    assert [event.type for event in await events_of(planner.bus, session_id)].count("task_ended") == 1


async def test_a_group_of_three_has_one_report(plan: Plan, provider: ModelServer) -> None:
    """It names what failed, and has every result."""
    planner, session_id = await plan(agents=HOST), new_id()
    tasks = [spawn(name, group="all of them") for name in ("one", "two", "three")]
    failed = Say(status=400)
    scripted(provider, *tasks, answer("Begun."), one=answer("First."), two=SLOW, three=failed)
    await planner.tell(PARENT, agent="host", session_id=session_id)
    session = await settled(planner.bus, session_id, reports=1)

    (reported,) = await of_type(planner.bus, session_id, "reported")
    group = session.background.groups[reported.group_id]
    assert (group.status, group.name, len(group.tasks)) == ("complete", "all of them", 3)
    assert (len(reported.tasks), len(reported.failed), reported.kind) == (2, 1, "group")
    assert [each.digest for each in session.background.results] == ["First.", "Late."]
    assert len(session.turns) == 2


async def test_a_job_makes_one_call(plan: Plan, provider: ModelServer) -> None:
    """No model is asked for it."""
    planner, session_id = await plan(agents=HOST), new_id()
    job = action("task", name="lookup", mode="job", tool="look", tool_args={"q": "cats"})
    scripted(provider, job, answer("Begun."))
    await planner.tell(PARENT, agent="host", session_id=session_id)
    session = await settled(planner.bus, session_id, reports=1)

    (spawned,) = await of_type(planner.bus, session_id, "task_spawned")
    child = await planner.ended(spawned.task_id)
    assert not child.of("asked")
    assert [(each.tool, each.status) for each in child.of("observed")] == [("look", "succeeded")]
    assert "found cats" in session.background.results[0].digest


async def test_a_run_waits_with_retain_turn(plan: Plan, provider: ModelServer) -> None:
    """It gets the results in hand, which are its report."""
    planner, session_id = await plan(agents=HOST), new_id()
    scripted(provider, spawn("a", retain_turn=True), answer("Here it is."), a=SLOW)
    story = await planner.tell(PARENT, agent="host", session_id=session_id)
    await settled(planner.bus, session_id)

    assert story.end.raw_answer == "Here it is."
    (observed,) = story.of("observed")
    assert "Late." in str(observed.observation)
    assert not await of_type(planner.bus, session_id, "reported")
    assert len(await of_type(planner.bus, session_id, "waiter_released")) == 1


async def test_a_cancel_reaches_the_children(plan: Plan, provider: ModelServer) -> None:
    """The run that spawned them is cancelled while it waits, and nothing is reported."""
    planner, session_id = await plan(agents=HOST), new_id()
    scripted(provider, spawn("a"), spawn("b", retain_turn=True), answer("never"), a=ENDLESS, b=ENDLESS)
    run = await planner.ask(PARENT, agent="host", session_id=session_id)

    async def are_asked() -> bool:
        return (
            len((await session_of(planner.bus, session_id)).background.open_tasks()) == 2 and len(provider.ledger) >= 4
        )

    await wait_until(are_asked, what="both tasks ask their models")
    await planner.cancel(run)
    assert (await planner.ended(run)).end.type == "cancelled"
    session = await settled(planner.bus, session_id)
    assert {task.status for task in session.background.tasks.values()} == {"cancelled"}
    assert not await of_type(planner.bus, session_id, "reported")
    for task in session.background.tasks:
        assert (await planner.ended(task)).end.type == "cancelled"


async def test_a_group_has_a_time_out(plan: Plan, provider: ModelServer) -> None:
    """Its open tasks are cancelled, and the report has what there is."""
    agents = {"host": {"tasks": {"spawn_requires_confirmation": False, "group_timeout_s": 1.5}}}
    planner, session_id = await plan(agents=agents), new_id()
    scripted(provider, spawn("a", group="g"), spawn("b", group="g"), answer("Begun."), a=answer("A."), b=ENDLESS)
    await planner.tell(PARENT, agent="host", session_id=session_id)
    await settled(planner.bus, session_id, reports=1)

    (reported,) = await of_type(planner.bus, session_id, "reported")
    assert (len(reported.tasks), len(reported.failed)) == (1, 1)
    ended = {event.outcome for event in await of_type(planner.bus, session_id, "task_ended")}
    assert ended == {"succeeded", "cancelled"}


async def test_results_wait_for_a_person(plan: Plan, provider: ModelServer) -> None:
    """Nobody is shown them before; the report follows the approval, once."""
    planner, session_id = await plan(agents=HOST), new_id()
    task = spawn("a", group="g", merge_strategy="HUMAN_GATED")
    scripted(provider, task, answer("Begun."), a=answer("Held."))
    await planner.tell(PARENT, agent="host", session_id=session_id)
    session = await settled(planner.bus, session_id)
    (group,) = session.background.groups.values()
    assert (group.status, group.decision, session.background.results) == ("complete", None, [])

    for _ in range(2):
        await control(planner, session_id, "apply", group_id=group.group_id, by="ann")
    session = await settled(planner.bus, session_id, reports=1)
    assert [each.digest for each in session.background.results] == ["Held."]
    assert len(await of_type(planner.bus, session_id, "results_merged")) == 1
    assert len(await of_type(planner.bus, session_id, "reported")) == 1
