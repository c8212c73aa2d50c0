"""Background tasks over a real server: runs spawn them, their session knows them, and other runs report on them."""

import pytest

from contracts.runs.inbox import CallFinished, GroupDue
from contracts.runs.pauses import OpenPause
from contracts.sessions.records import Checkpoint
from contracts.sessions.tasks import (
    GroupEnded,
    GroupOpened,
    GroupSealed,
    SessionTaskCalled,
    TaskEnded,
    TaskPolicy,
    TaskSpawned,
)
from contracts.wire import subjects
from contracts.wire.ids import new_id, own_session_id, unix_ms
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.messaging.streams.definitions import PLANNER_SESSION
from services.planner.logs.session_log import SessionAddress
from services.shared.sessions.task_state import Background
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
from tests.support.session_writer import SessionWriter
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


async def test_a_run_without_a_session_spawns_tasks_in_its_own(plan: Plan, provider: ModelServer) -> None:
    """The report comes there, and the conversation begins with the run that spawned them."""
    planner = await plan(agents=HOST)
    scripted(provider, spawn("a"), answer("Begun."), a=SLOW)
    story = await planner.tell(PARENT, agent="host")
    session = await settled(planner.bus, own_session_id(story.run), reports=1)
    assert [turn.answer for turn in session.turns] == ["Begun.", "All of it is done."]
    (task,) = session.background.tasks
    assert (await planner.ended(task)).of("run_started")[0].request.session_id == own_session_id(story.run)


async def test_the_pauses_of_a_task_show_in_its_session(plan: Plan, provider: ModelServer) -> None:
    """A person decides there, and the task goes on."""
    ask = {"name": "ask", "tools": ["look"], "ask": "always"}
    agents = {"host": {**HOST["host"], "approvals": [ask]}}
    planner, session_id = await plan(agents=agents), new_id()
    scripted(provider, spawn("a"), answer("Begun."))
    provider.by_turn(action("look", q="cats"), answer("Found."), marker="a?")
    await planner.tell(PARENT, agent="host", session_id=session_id)

    async def open_pauses() -> list[OpenPause]:
        return (await session_of(planner.bus, session_id)).pauses

    (shown,) = await wait_until(open_pauses, what="the pause shows in the session")
    (task,) = (await session_of(planner.bus, session_id)).background.tasks
    assert (shown.run_id, shown.tool) == (task, "look")
    (paused,) = await planner.paused(task)
    await planner.decide(paused, task, "approve")
    session = await settled(planner.bus, session_id, reports=1)
    assert (session.background.tasks[task].status, session.pauses) == ("succeeded", [])


async def test_a_report_is_no_reply_to_a_pause(plan: Plan, provider: ModelServer) -> None:
    """It waits until the run before it, which waits for a person, has ended."""
    agents = {"host": {**HOST["host"], "approvals": [{"name": "ask", "tools": ["look"], "ask": "always"}]}}
    planner, session_id = await plan(agents=agents), new_id()
    scripted(provider, spawn("a"), action("look", q="cats"), answer("Begun."), a=answer("A."))
    run = await planner.ask(PARENT, agent="host", session_id=session_id)
    (paused,) = await planner.paused(run)

    async def reports() -> list[str]:
        return [each.run for each in (await session_of(planner.bus, session_id)).queue]

    await wait_until(reports, what="the report waits for its turn")
    assert [each.tool for each in (await session_of(planner.bus, session_id)).pauses] == ["look"]
    await planner.decide(paused, run, "approve")
    session = await settled(planner.bus, session_id, reports=1)
    assert [turn.answer for turn in session.turns] == ["Begun.", "All of it is done."]


async def test_the_status_of_an_old_task_comes_from_the_log(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's state has dropped it; of a task that never was there is none."""
    provider.reset()
    planner = await plan()
    session = SessionWriter(planner.bus, new_id())
    await session.start()
    run, task = new_id(), new_id()
    await session.begin(run)
    await session.log(
        GroupOpened(group_id=task, run=run),
        TaskSpawned(task_id=task, group_id=task, run=run, call_id="1-1", mode="subagent", query="Old?"),
        GroupSealed(group_id=task),
        TaskEnded(task_id=task, outcome="succeeded", digest="An old result."),
        GroupEnded(group_id=task, status="complete"),
    )
    state = session.state.model_copy(update={"background": Background()})
    await session.log(Checkpoint(state=state.model_dump(mode="json", exclude_defaults=True)))
    answers: dict[str, CallFinished] = {}
    publish = Bus.publish_surely

    async def noted(bus: Bus, subject: str, data: bytes, message_id: str, headers: dict[str, str] | None = None) -> int:
        if subject.startswith("inbox."):
            finished = CallFinished.model_validate_json(data)
            answers[finished.call_id] = finished
        return await publish(bus, subject, data, message_id, headers)

    monkeypatch.setattr(Bus, "publish_surely", noted)
    for number, wanted in enumerate((task, new_id())):
        message = SessionTaskCalled(
            session_id=session.session_id,
            run=run,
            call_id=f"2-{number}",
            action="status",
            args={"task_id": wanted},
            policy=TaskPolicy(),
            at=unix_ms(),
        )
        subject = subjects.session_inbox("default", session.key, f"{run}-task-2-{number}")
        await planner.bus.publish(subject, message.model_dump_json().encode())
    await wait_until(lambda: len(answers) == 2, what="both calls are answered")
    assert answers["2-0"].observation["result"] == "An old result."
    assert answers["2-1"].failure is not None
    assert answers["2-1"].failure.code == "task_not_found"


async def test_a_call_that_cannot_be_handled_fails(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is in DEAD, and its run goes on."""
    publish = Bus.publish_surely

    async def garbled(
        bus: Bus, subject: str, data: bytes, message_id: str, headers: dict[str, str] | None = None
    ) -> int:
        body = b"{}" if b'"kind":"task_call"' in data else data
        return await publish(bus, subject, body, message_id, headers)

    monkeypatch.setattr(Bus, "publish_surely", garbled)
    planner, session_id = await plan(agents=HOST), new_id()
    scripted(provider, spawn("a"), answer("No task."))
    story = await planner.tell(PARENT, agent="host", session_id=session_id)
    assert (story.of("observed")[0].tool, story.of("observed")[0].failure.code) == ("task.spawn", "poisoned")
    assert story.end.raw_answer == "No task."


async def test_a_timer_of_a_session_that_cannot_be_handled_is_no_run(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in DEAD. Its subject names the session in the place of a run, and no log of such a run begins."""
    planner, key = await plan(agents=HOST), new_id()

    async def too_often(_bus: Bus, _delivery: Delivery) -> int:
        return 1_000

    monkeypatch.setattr(dead_letters, "count_start", too_often)
    due = GroupDue(group_id=new_id(), what="group")
    subject = subjects.control("default", key, "group-1")
    await planner.bus.publish(subject, due.model_dump_json().encode())

    async def is_dead() -> bool:
        last = await planner.bus.last(subjects.DEAD, subjects.dead(subjects.INBOX))
        return last is not None and (last.headers or {}).get(dead_letters.SUBJECT) == subject

    async def is_acknowledged() -> bool:
        return await planner.bus.last(subjects.INBOX, subject) is None

    await wait_until(is_dead, what="the timer is in DEAD")
    await wait_until(is_acknowledged, what="the timer is acknowledged")
    assert await planner.bus.last(subjects.RUNS, subjects.log("default", key)) is None


async def test_a_late_call_of_an_ended_run_begins_no_session(plan: Plan, provider: ModelServer) -> None:
    """The session of that run alone may have been deleted."""
    planner = await plan()
    provider.say(answer("Done."))
    run = (await planner.tell()).run
    session_id = own_session_id(run)
    fields = {"session_id": session_id, "run": run, "policy": TaskPolicy(), "at": unix_ms(), "action": "list"}
    message = SessionTaskCalled(call_id="1-1", **fields)
    subject = subjects.session_inbox(*SessionAddress.of("default", session_id), f"{run}-task-1-1")
    sequence = await planner.bus.publish(subject, message.model_dump_json().encode())

    async def is_handled() -> bool:
        info = await planner.bus.api(f"CONSUMER.INFO.{subjects.INBOX}.{PLANNER_SESSION}", {})
        return bool(info["ack_floor"]["stream_seq"] >= sequence)

    await wait_until(is_handled, what="the call is handled")
    assert not (await session_of(planner.bus, session_id)).exists
