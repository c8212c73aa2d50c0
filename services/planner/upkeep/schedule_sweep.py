"""Sets the timers of schedules that have none, once a minute. Several planners may do so at once.

A timer is missing if its message was lost between the schedule's entry and the timer: nobody writes both at once. It is
also missing for a moment after it has fired, so a fire time that has just come is left to its own message.
"""

import asyncio
import random

import structlog

from contracts.sessions.schedules import FIRE_TIMER, MAX_LATENESS_S, Schedule
from contracts.wire import keys, subjects
from contracts.wire.names import InvalidName
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.planner.upkeep.firing import Schedules

logger = structlog.get_logger(__name__)

SWEEP_EVERY_S = 60.0


async def watch(bus: Bus) -> None:
    """Sweep until cancelled. Never raises."""
    while True:
        try:
            await sweep(bus)
        except BusError as error:
            logger.warning("schedules_not_swept", error=str(error))
        await asyncio.sleep(SWEEP_EVERY_S * random.uniform(0.9, 1.1))  # noqa: S311, a spread, not a secret


async def sweep(bus: Bus) -> int:
    """Set missing timers, and return how many. Raises BusError."""
    bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=2)
    known = await bucket.keys(keys.ALL_SCHEDULES)
    timers = {*await bus.subjects_in(subjects.TIMERS, subjects.ALL_SCHEDULE_TIMERS)} if known else set()
    untimed = [key for key in known if _timer_of(key) not in timers]
    now, found = int(await bus.clock.now() * 1000), 0
    for entry in (await bucket.get_many(untimed)).values():
        schedule = entry.parsed(Schedule)
        if schedule is None or schedule.next_at is None or 0 <= now - schedule.next_at < MAX_LATENESS_S * 1000:
            continue
        await Schedules(bus).set_timer(schedule)
        logger.warning("timer_restored", schedule_id=schedule.schedule_id, tenant=schedule.tenant)
        found += 1
    return found


def _timer_of(key: str) -> str | None:
    try:
        return subjects.timer(*keys.parse_schedule_key(key), FIRE_TIMER)
    except InvalidName:
        return None
