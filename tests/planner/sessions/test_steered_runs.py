"""A text that comes while a run has the turn becomes an input of that run."""

from contracts.runs.requests import RunRequested
from contracts.sessions.records import KnownSessionEvent, RunBegun, RunQueued, SessionStarted
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from services.planner.logs.session_log import SessionAddress, SessionLogs
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, answer
from tests.support.session_logs import idle


async def test_a_text_may_come_before_the_log_of_its_run(plan: Plan, provider: ModelServer) -> None:
    """The run has the turn, and the planner that began it has not opened it yet."""
    planning, session_id, first = await plan(), new_id(), new_id()
    provider.say(answer("both"))
    logs, where = SessionLogs(planning.bus), SessionAddress.of("default", session_id)
    begun: list[KnownSessionEvent] = [
        SessionStarted(session_id=session_id),
        RunQueued(run=first, requested_at=unix_ms()),
        RunBegun(run=first),
    ]
    assert await logs.append(where, await logs.load(where), "REQUESTS:1", begun) is not None
    second = await planning.tell("And this?", session_id=session_id, on_busy="steer")
    assert second.end.route == "merged"
    request = RunRequested(
        run_id=first, tenant="default", requested_at=unix_ms(), trace_id="t", query="First?", session_id=session_id
    )
    await planning.bus.publish(subjects.request("default", first), request.model_dump_json().encode())
    story = await planning.ended(first)
    facts = [each for each in story.facts() if each != "control_answered"]
    assert facts[:3] == ["input_added", "run_started", "asked"]
    session = await idle(planning.bus, session_id)
    assert [(turn.question, turn.inputs) for turn in session.turns] == [("First?", ["And this?"])]
