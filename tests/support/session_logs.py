"""Sessions for the tests, as their logs have them; and runs, as the index has them."""

from collections.abc import Sequence

from contracts.runs.events import Queued, RunEvent
from contracts.runs.requests import RunStatus
from contracts.sessions.records import KnownSessionEvent
from contracts.wire import keys, subjects
from contracts.wire.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.planner.effects.sessions import Sessions
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.settings import PlannerSettings
from services.planner.strategies.registry import strategies_of
from services.shared.sessions.state import Session
from tests.support.waiting import wait_until

STRATEGIES = strategies_of(PlannerSettings())


def sessions_of(bus: Bus) -> Sessions:
    """The sessions of one planner, with a cache of its own."""
    logs = SessionLogs(bus)
    return Sessions(bus, RunLogs(bus, logs, STRATEGIES.of), logs)


def is_queued(event: RunEvent) -> bool:
    """The run waits for its turn."""
    return isinstance(event, Queued)


async def session_of(bus: Bus, session_id: str) -> Session:
    """The session as a planner without a cache reads it."""
    return await SessionLogs(bus).load(SessionAddress.of("default", session_id), from_leader=True)


async def status_of(bus: Bus, run: str) -> RunStatus | None:
    """The entry of a run in the index; None before it has one."""
    for entry in await Bucket(bus, keys.RUNS_BUCKET).latest(keys.run_entry.pattern(tenant="default")):
        status = entry.parsed(RunStatus)
        if status is not None and status.run_id == run:
            return status
    return None


async def appended(logs: SessionLogs, where: SessionAddress, *records: Sequence[KnownSessionEvent]) -> list[Session]:
    """Append records to a session; return it after each of them."""
    states, session = [], await logs.load(where)
    for events in records:
        after = await logs.append(where, session, "INBOX:1", events)
        assert after is not None
        states.append(session := after)
    return states


async def events_of(bus: Bus, session_id: str) -> list[str]:
    """The types of all events of a session."""
    reader = await bus.reader(subjects.SESSIONS)
    stored = await reader.current(subjects.session_log(*SessionAddress.of("default", session_id)))
    return ",".join((message.headers or {})[EVENTS_HEADER] for message in stored).split(",")


async def idle(bus: Bus, session_id: str) -> Session:
    """Return the session once no run of it is open."""

    async def found() -> Session | None:
        session = await session_of(bus, session_id)
        return None if session.open_runs() else session

    session = await wait_until(found, what="no run of the session is open")
    assert session is not None
    return session


async def handled(bus: Bus) -> None:
    """Return once no message waits for a planner."""

    async def is_empty() -> bool:
        states = [(await bus.api(f"STREAM.INFO.{name}", {}))["state"] for name in ("REQUESTS", "INBOX")]
        return not any(state["messages"] for state in states)

    await wait_until(is_empty, what="no message waits")
