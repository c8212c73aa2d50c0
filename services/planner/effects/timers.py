"""The timers of runs: scheduled messages of NATS, which reach the control consumer when they are due."""

from datetime import UTC, datetime

import structlog

from contracts import subjects
from contracts.inbox import TimerFired, TimerName
from contracts.runs import RunRequested
from services.messaging.connection import Bus
from services.messaging.errors import BusError

logger = structlog.get_logger(__name__)


async def set_timer(bus: Bus, request: RunRequested, name: TimerName, at_ms: int) -> None:
    """Schedule a timer message at a time, Unix ms. It replaces an earlier timer of the name. Idempotent."""
    subject = subjects.timer(request.tenant, request.run_id, name)
    at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    headers = {
        "Nats-Schedule": f"@at {at}",
        "Nats-Schedule-Target": subjects.due(request.tenant, request.run_id, name),
        "Nats-Schedule-TTL": "5m",  # The fired message is in INBOX by then, so this one may expire.
        "Nats-Rollup": "sub",
    }
    body = TimerFired(timer=name, at=at_ms).model_dump_json().encode()
    await bus.publish_surely(subject, body, f"{request.run_id}-{name}-{at_ms}", headers)


async def cancel_timers(bus: Bus, request: RunRequested) -> None:
    """Remove all timers of a run. A timer that is left behind changes nothing in an ended run."""
    await purge(bus, subjects.TIMERS, subjects.timers_of(request.tenant, request.run_id))


async def purge(bus: Bus, stream: str, subject: str) -> None:
    """Purge a subject of a stream. A failure is only logged."""
    try:
        await bus.api(f"STREAM.PURGE.{stream}", {"filter": subject})
    except BusError as error:
        logger.warning("purge_failed", subject=subject, error=str(error))
