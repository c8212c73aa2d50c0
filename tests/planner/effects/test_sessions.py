"""Two planners of one session: neither knows what the other has written since it read the session."""

from contracts.runs.requests import RunRequested
from contracts.sessions.records import RunEnded, SessionRunEnded
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.planner.effects.sessions import Sessions
from services.planner.logs.session_log import SessionAddress
from services.planner.run.state.run import Begun, Busy, Place, Waiting
from tests.support.session_logs import events_of, sessions_of

SESSION = new_id()


async def enter(sessions: Sessions, run: str) -> Place:
    """Let a run join, unless it would have to wait."""
    request = RunRequested(
        run_id=run, tenant="default", requested_at=1, trace_id="t" * 32, query="what?", session_id=SESSION
    )
    return await sessions.enter(request, f"REQUESTS:{run}", is_queued=False)


async def end(sessions: Sessions, run: str) -> None:
    """The run tells its session that it has ended."""
    ended = RunEnded(run=run, outcome="done", question="what?", answer="that")
    await sessions.on_message(SessionAddress.of("default", SESSION), SessionRunEnded(ended=ended), f"INBOX:{run}")


async def test_a_planner_that_knows_an_old_session_decides_from_the_new_one(bus: Bus) -> None:
    """A run begins only where nobody has the turn, has it once, and what another planner has stored is not repeated."""
    one, other = sessions_of(bus), sessions_of(bus)
    first, second, third = new_id(), new_id(), new_id()
    assert isinstance(await enter(one, first), Begun)
    await end(other, first)
    await end(one, first)
    assert isinstance(await enter(other, second), Begun)
    assert isinstance(await enter(one, second), Begun)
    assert isinstance(await enter(one, third), Busy)
    await end(other, second)
    assert isinstance(await enter(one, first), Waiting)
    assert isinstance(await enter(one, third), Begun)
    begun = ["run_queued", "run_begun"]
    assert await events_of(bus, SESSION) == ["session_started", *begun, "run_ended", *begun, "run_ended", *begun]
