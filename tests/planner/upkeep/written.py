"""Schedules that a test writes as the gateway does."""

from typing import Any

from contracts.runs.inbox import ScheduleDue, ScheduleSet
from contracts.runs.requests import RunRequested
from contracts.sessions.schedules import FIRE_TIMER, Schedule
from contracts.wire import keys, subjects
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.messaging.kv import Bucket

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def schedule_of(**fields: Any) -> Schedule:
    """A schedule for a question; by default one that fires in an hour, once."""
    schedule_id, tenant = fields.get("schedule_id", new_id()), "default"
    request = RunRequested(
        run_id=schedule_id, tenant=tenant, requested_at=0, trace_id="t", query="Now?", schedule_id=schedule_id
    )
    known = {"schedule_id": schedule_id, "tenant": tenant, "request": request, "body_sha256": "", "created_at": 0}
    at = fields.get("at", unix_ms() + HOUR_MS)
    times = {"next_at": at} if "cron" in fields else {"at": at, "next_at": at}
    return Schedule(**{**known, **times, **fields})


async def store(bus: Bus, schedule: Schedule) -> Schedule:
    await bucket(bus).put(keys.schedule_entry(schedule.tenant, schedule.schedule_id), schedule)
    return schedule


async def stored(bus: Bus, schedule: Schedule) -> Schedule | None:
    """The entry of a schedule as it is now."""
    entry = await bucket(bus).get_from_leader(keys.schedule_entry(schedule.tenant, schedule.schedule_id))
    return entry.parsed(Schedule)


async def remove(bus: Bus, schedule: Schedule) -> None:
    await bucket(bus).delete(keys.schedule_entry(schedule.tenant, schedule.schedule_id))


async def send(bus: Bus, schedule: Schedule, message: ScheduleSet | ScheduleDue) -> None:
    subject = subjects.control(schedule.tenant, schedule.schedule_id, "set")
    await bus.publish(subject, message)


async def timer_of(bus: Bus, schedule: Schedule) -> int | None:
    """The time for which the schedule's timer is set."""
    subject = subjects.timer(schedule.tenant, schedule.schedule_id, FIRE_TIMER)
    found = await bus.last_from_leader(subjects.TIMERS, subject)
    return ScheduleDue.model_validate_json(found[1]).at if found is not None else None


async def requested(bus: Bus, run: str) -> RunRequested | None:
    """The request of a run that waits for a planner."""
    found = await bus.last_from_leader(subjects.REQUESTS, subjects.request("default", run))
    return RunRequested.model_validate_json(found[1]) if found is not None else None


async def withdraw(bus: Bus, run: str) -> None:
    """Remove a request, as a planner does that has taken it."""
    await bus.api(f"STREAM.PURGE.{subjects.REQUESTS}", {"filter": subjects.request("default", run)})


def bucket(bus: Bus) -> Bucket:
    return Bucket(bus, keys.RUNS_BUCKET)
