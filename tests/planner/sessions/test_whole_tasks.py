"""Background tasks over a real server: runs spawn them, their session knows them, and other runs report on them."""

import pytest

from contracts.runs.inbox import GroupDue
from contracts.runs.pauses import OpenPause
from contracts.sessions.tasks import SessionTaskCalled, TaskPolicy
from contracts.wire import subjects
from contracts.wire.names import new_id, own_session_id, unix_ms
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.planner.logs.session_log import SessionAddress
from tests.planner.conftest import Plan
from tests.planner.sessions.task_scripts import HOST, PARENT, REPORT, of_type, scripted, settled, spawn
from tests.support.model_server import ModelServer, Say, Seen, action, answer
from tests.support.session_logs import session_of, sessions_of
from tests.support.waiting import wait_until

ENDLESS = Say(silent=True)


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
    await planner.bus.publish(subject, due)

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
    outcome = await sessions_of(planner.bus).on_message(SessionAddress.of("default", session_id), message, "REQUESTS:1")
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.code == "not_found"
    assert not (await session_of(planner.bus, session_id)).exists


@pytest.mark.parametrize("on_busy", ["queue", "reject", "cancel", "steer"])
async def test_a_report_yields_to_a_user(plan: Plan, provider: ModelServer, on_busy: str) -> None:
    """The question is answered at once, whatever it says about a busy session. Then the report is written again."""
    planner, session_id = await plan(agents=HOST), new_id()
    asked: list[str] = []

    def choose(request: Seen) -> Say:
        if "And now?" in request.text:
            return answer("It is noon.")
        if REPORT in request.text:
            asked.append(request.text)
            return ENDLESS if len(asked) == 1 else answer("All is done.")
        if PARENT in request.text:
            return answer("Begun.") if request.turns else spawn("a")
        return answer("Found.")

    provider.choose = choose
    await planner.tell(PARENT, agent="host", session_id=session_id)
    await wait_until(lambda: asked, what="the report is being written")
    story = await planner.tell("And now?", agent="host", session_id=session_id, on_busy=on_busy)
    assert story.end.raw_answer == "It is noon."
    session = await settled(planner.bus, session_id, reports=1)
    assert [turn.answer for turn in session.turns] == ["Begun.", "It is noon.", "All is done."]
    assert len(asked) == 2
    assert len(await of_type(planner.bus, session_id, "run_yielded")) == 1
    (report,) = [turn.run for turn in session.turns[2:]]
    events = [event.type for event in (await planner.ended(report)).events]
    assert events.index("yielded") < events.index("resumed") < events.index("done")
