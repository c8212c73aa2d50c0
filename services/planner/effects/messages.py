"""Messages that planners send for runs and sessions: requests of runs that no caller asks for, and timers.

A timer is a scheduled message of NATS, which reaches the control consumer when it is due.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import structlog
from pydantic import BaseModel

from contracts.runs.inbox import TimerFired, TimerName
from contracts.runs.requests import RunRequested
from contracts.sessions.records import SESSION_HEADER, SessionRunsForgotten
from contracts.wire import keys, subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Refused

logger = structlog.get_logger(__name__)


async def request_run(bus: Bus, request: RunRequested) -> None:
    """Store the request of a run, unless it is stored. Idempotent, also beyond the window of message ids.

    Raises Refused when the queue of new runs is full.
    """
    run = request.run_id
    headers = {SESSION_HEADER: keys.session_key(request.session_id)} if request.session_id is not None else None
    try:
        await bus.publish_surely(subjects.request(request.tenant, run), request, run, headers)
    except Refused as refusal:
        if not refusal.is_second_of_subject:
            raise


async def forget_runs(bus: Bus, tenant: str, session_id: str, runs: Sequence[str]) -> None:
    """Tell a session, if there is one, that runs of it were deleted."""
    key = keys.session_key(session_id)
    if await bus.last(subjects.SESSIONS, subjects.session_log(tenant, key)) is not None:
        body = SessionRunsForgotten(runs=list(runs)).model_dump_json().encode()
        name = f"forget-{hashlib.sha256(body).hexdigest()[:32]}"
        await bus.publish_surely(subjects.session_inbox(tenant, key, name), body, f"{key}.{name}")


async def set_timer(bus: Bus, request: RunRequested, name: TimerName, at_ms: int) -> None:
    """Schedule a timer message of a run at a time, Unix ms. It replaces an earlier timer of the name. Idempotent."""
    await schedule(bus, request.tenant, request.run_id, name, TimerFired(timer=name, at=at_ms), at_ms)


async def schedule(
    bus: Bus, tenant: str, of: str, name: str, body: BaseModel, at_ms: int, message_id: str | None = None
) -> None:
    """Schedule a message at a time, Unix ms. `of`: a run, or a session or schedule in its place in the subject.

    Idempotent. `message_id`: by default one timer of a name and time is stored within the window of message ids.
    """
    at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    headers = {
        "Nats-Schedule": f"@at {at}",
        "Nats-Schedule-Target": subjects.due(tenant, of, name),
        "Nats-Schedule-TTL": "5m",  # The fired message is in INBOX by then, so this one may expire.
        "Nats-Rollup": "sub",
    }
    await bus.publish_surely(subjects.timer(tenant, of, name), body, message_id or f"{of}-{name}-{at_ms}", headers)


async def cancel_timers(bus: Bus, tenant: str, of: str) -> None:
    """Remove all timers of a run or session. One that is left behind changes nothing once it has ended."""
    await purge(bus, subjects.TIMERS, subjects.timer.pattern(tenant=tenant, run=of))


async def purge(bus: Bus, stream: str, subject: str) -> None:
    """Purge a subject of a stream. A failure is only logged."""
    try:
        await bus.api(f"STREAM.PURGE.{stream}", {"filter": subject})
    except BusError as error:
        logger.warning("purge_failed", subject=subject, error=str(error))
