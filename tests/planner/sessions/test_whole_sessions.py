"""Runs of one session take turns, or add to the one that has the turn, on a real server, through the planner."""

from typing import Any

import pytest

from contracts.runs.events import Asked
from contracts.sessions.records import RunBegun, RunQueued, SessionStarted
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.planner.effects import bookkeeping
from services.planner.logs.session_log import SessionAddress, SessionLogs
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.session_logs import appended, handled, idle, is_queued, status_of
from tests.support.waiting import wait_until

SLOW = Say(text=answer("one").text, delay_s=0.7)


async def busy(planning: Planning, session_id: str) -> str:
    """Ask a first run, and return its id once its model is asked."""
    run = await planning.ask("First?", session_id=session_id)
    await planning.until(run, lambda event: isinstance(event, Asked))
    return run


async def test_the_next_question_begins_right_after_the_end(plan: Plan, provider: ModelServer) -> None:
    """Also where the session has not taken the end of the run before it."""
    planning, session_id = await plan(), new_id()
    provider.say(*(answer(str(number)) for number in range(10)))
    stories = [await planning.tell(f"{number}?", session_id=session_id) for number in range(10)]
    assert all(story.facts()[0] == "run_started" for story in stories)
    session = await idle(planning.bus, session_id)
    assert [turn.answer for turn in session.turns] == [str(number) for number in range(10)]


async def test_a_run_in_a_session_stores_three_messages_more(
    own_nats_server: NatsServer, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two records of the session, and its entry in the index."""
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_S", 60.0)
    provider.say(*(answer("yes") for _ in range(3)))
    async with planning(own_nats_server.url, provider) as planner:

        async def cost(**fields: Any) -> int:
            before = await stored_beside_runs(planner.bus)
            await planner.tell(**fields)
            await handled(planner.bus)
            return await stored_beside_runs(planner.bus) - before

        session_id = new_id()
        await cost(session_id=session_id)
        assert await cost(session_id=session_id) == await cost() + 3


async def stored_beside_runs(bus: Bus) -> int:
    """Messages that all streams but the one of the runs' logs have ever stored."""
    streams = (await bus.api("STREAM.LIST", {}))["streams"]
    return sum(each["state"]["last_seq"] for each in streams if each["config"]["name"] != subjects.RUNS)


async def test_a_queued_run_can_be_cancelled(plan: Plan, provider: ModelServer) -> None:
    """Its status says that it waits; then the session forgets it."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW)
    first = await busy(planning, session_id)
    second = await planning.ask("Second?", session_id=session_id)
    await planning.until(second, is_queued)

    async def status() -> str | None:
        found = await status_of(planning.bus, second)
        return found.status if found is not None else None

    assert await wait_until(status, what="the run has an entry") == "queued"
    await planning.cancel(second)
    assert (await planning.ended(second)).facts() == ["queued", "cancelled"]
    await planning.ended(first)
    session = await idle(planning.bus, session_id)
    assert [turn.run for turn in session.turns] == [first]
    assert await status() == "cancelled"


async def test_a_queued_run_keeps_its_tool_context(plan: Plan, provider: ModelServer) -> None:
    """No log holds it, and its tool receives it."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW, action("look", q="x"), answer("seen"))
    await busy(planning, session_id)
    story = await planning.tell("Look?", session_id=session_id, tool_context={"token": "CANARY"})
    assert story.facts()[0] == "queued"
    assert story.of("queued")[0].has_tool_context
    assert story.of("run_started")[0].has_tool_context
    assert "CANARY" not in repr(story.events)
    context = await planning.bus.last(subjects.RUNS, subjects.context("default", story.run))
    assert context is not None
    assert b"CANARY" in context.data


async def test_a_text_may_come_before_the_log_of_its_run(plan: Plan, provider: ModelServer) -> None:
    """The run has the turn, and the planner that began it has not opened it yet."""
    planning, session_id, first = await plan(), new_id(), new_id()
    provider.say(answer("both"))
    begun = SessionStarted(session_id=session_id), RunQueued(run=first, requested_at=unix_ms()), RunBegun(run=first)
    await appended(SessionLogs(planning.bus), SessionAddress.of("default", session_id), begun)
    second = await planning.tell("And this?", session_id=session_id, on_busy="steer")
    assert second.end.route == "merged"
    await planning.ask("First?", run=first, session_id=session_id)
    story = await planning.ended(first)
    facts = [each for each in story.facts() if each != "control_answered"]
    assert facts[:3] == ["input_added", "run_started", "asked"]
    session = await idle(planning.bus, session_id)
    assert [(turn.question, turn.inputs) for turn in session.turns] == [("First?", ["And this?"])]
