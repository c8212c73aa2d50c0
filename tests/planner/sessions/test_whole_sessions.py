"""Runs of one session take turns, on a real server, through the planner."""

from contracts import subjects
from contracts.events import Queued, RunEvent
from contracts.ids import new_id
from contracts.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.planner.session_log import SessionAddress, SessionLogs
from services.shared.session_state import Session
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, answer
from tests.support.waiting import wait_until


def is_queued(event: RunEvent) -> bool:
    """The run waits for its turn."""
    return isinstance(event, Queued)


async def session_of(bus: Bus, session_id: str) -> Session:
    """The session as a planner without a cache reads it."""
    return await SessionLogs(bus).load(SessionAddress.of("default", session_id))


async def events_of(bus: Bus, session_id: str) -> list[str]:
    """The types of all events of a session."""
    reader = await bus.reader(subjects.SESSIONS)
    where = SessionAddress.of("default", session_id)
    stored = await reader.current(subjects.session_log(*where))
    return ",".join((message.headers or {})[EVENTS_HEADER] for message in stored).split(",")


async def test_a_second_request_waits_for_the_first(plan: Plan, provider: ModelServer) -> None:
    """It begins when the first run has ended, with a deadline of its own, and knows the record of its begin."""
    planning, session_id = await plan(), new_id()
    provider.say(Say(text=answer("one").text, delay_s=0.5), answer("two"))
    first = await planning.ask("First?", session_id=session_id)
    second = await planning.ask("Second?", session_id=session_id, limits={"deadline_s": 30})
    await planning.until(second, is_queued)
    one, two = await planning.ended(first), await planning.ended(second)
    assert (one.end.raw_answer, two.end.raw_answer) == ("one", "two")
    assert one.facts()[0] == "run_started"
    assert two.facts()[:3] == ["queued", "run_started", "asked"]
    started = two.of("run_started")[0]
    assert started.deadline_at > started.request.requested_at + 30_000 + 400
    await wait_until_idle(planning.bus, session_id)
    session = await session_of(planning.bus, session_id)
    assert [(turn.question, turn.answer) for turn in session.turns] == [("First?", "one"), ("Second?", "two")]
    assert one.of("run_started")[0].conversation_seq < started.conversation_seq < session.seq
    events = await events_of(planning.bus, session_id)
    assert events == [
        *("session_started", "run_queued", "run_begun", "run_queued"),
        *("run_ended", "run_begun", "run_ended"),
    ]


async def wait_until_idle(bus: Bus, session_id: str) -> None:
    """Return once nobody has the turn."""

    async def is_idle() -> bool:
        return not (await session_of(bus, session_id)).open_runs()

    await wait_until(is_idle, what="nobody has the turn")


async def test_a_run_without_a_session_tells_nobody(plan: Plan, provider: ModelServer) -> None:
    """Its log has neither a place nor a conversation."""
    provider.say(answer("alone"))
    story = await (await plan()).tell("Alone?")
    assert story.facts() == ["run_started", "asked", "step", "step", "done"]
    assert story.of("run_started")[0].conversation_seq is None
