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
from contracts.wire.names import new_id, own_session_id, unix_ms
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
