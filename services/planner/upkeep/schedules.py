"""Starts the runs of schedules, each once, and sets the timer of the next fire time.

Rule 1: the order is the request of the run, the entry of the schedule (guarded by its revision), the timer of the next
fire time, the acknowledgement. Whatever a planner leaves undone by dying, the redelivered message does: the id of the
run follows from the fire time, so the request that was stored before counts.
Rule 2: the entry says which fire time is next. A timer of any other fire time starts nothing and only sets the right
one. A schedule without an entry was deleted, and starts nothing.
Rule 3: a schedule whose timer is missing gets one from the sweep (`sweep`). Two timers of a fire time start one run.
"""

import structlog

from contracts.runs.inbox import ScheduleDue, ScheduleSet
from contracts.sessions.schedules import FIRE_TIMER, MAX_LATENESS_S, Schedule
from contracts.wire import keys, subjects
from contracts.wire.names import InvalidName, new_id, started_run_id, unix_ms
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket, Entry
from services.planner.effects import messages
from services.planner.logs.ownership_watch import Address
from services.runtime.tasks import every
from services.shared.schedules import firing

logger = structlog.get_logger(__name__)

SWEEP_EVERY_S = 60.0
ENDED_KEPT_S = 7 * 86_400
"""How long a schedule that never fires again stays in lists."""


class Schedules:
    """The schedules of all tenants, over one bus. `address` names the schedule in place of a run."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.RUNS_BUCKET)

    async def on_message(self, address: Address, message: ScheduleSet | ScheduleDue) -> None:
        """Handle the message that a schedule was made or deleted, or that its timer has fired."""
        if isinstance(message, ScheduleDue):
            await self._on_due(address, message.at)
            return
        entry, schedule = await self._read(address)
        if not entry.data:
            await messages.purge(self._bus, subjects.TIMERS, subjects.timer(*address, FIRE_TIMER))
        elif schedule is not None:
            await self.set_timer(schedule)

    async def set_timer(self, schedule: Schedule) -> None:
        """Set the timer of the next fire time, if there is one. It replaces an earlier timer of the schedule."""
        if schedule.next_at is not None:
            # The id is new each time: an outdated timer may have replaced one that was set a moment ago.
            due, address = ScheduleDue(at=schedule.next_at), (schedule.tenant, schedule.schedule_id)
            await messages.schedule(self._bus, *address, FIRE_TIMER, due, schedule.next_at, new_id())

    async def _on_due(self, address: Address, due: int) -> None:
        while True:
            entry, schedule = await self._read(address)
            if schedule is None:
                return
            if schedule.next_at != due:
                break
            changed = await self._fired(schedule, due, unix_ms())
            ttl_s = ENDED_KEPT_S if changed.next_at is None else None
            try:
                await self._bucket.update(entry.key, changed, revision=entry.sequence, ttl_s=ttl_s)
            except Outdated:  # It was deleted, or another handling of this message has come first.
                continue
            schedule = changed
            break
        await self.set_timer(schedule)

    async def _read(self, address: Address) -> tuple[Entry, Schedule | None]:
        """Return the entry of a schedule as the leader has it: a replica may not know yet what was just written."""
        key = keys.schedule_entry(*address)
        entry = await self._bus.until_answered(lambda: self._bucket.get_from_leader(key))
        return entry, entry.parsed(Schedule)

    async def _fired(self, schedule: Schedule, due: int, now: int) -> Schedule:
        """Request the run of a fire time, and return the schedule as it is afterwards."""
        at, next_at = firing(schedule, due, now)
        if at is None:
            logger.info("fire_time_missed", schedule_id=schedule.schedule_id, tenant=schedule.tenant, due=due)
            return schedule.model_copy(update={"next_at": next_at})
        run = started_run_id(schedule.tenant, schedule.schedule_id, at)
        request = schedule.request.model_copy(update={"run_id": run, "requested_at": now, "trace_id": new_id()})
        await messages.request_run(self._bus, request)
        logger.info("run_scheduled", run_id=run, schedule_id=schedule.schedule_id, tenant=schedule.tenant)
        return schedule.model_copy(update={"next_at": next_at, "last_at": at, "last_run": run})


async def watch(bus: Bus) -> None:
    """Set missing timers once a minute, until cancelled. Several planners may do so at once."""
    await every(SWEEP_EVERY_S, lambda: sweep(bus), (BusError,), "schedules_not_swept")


async def sweep(bus: Bus) -> int:
    """Set missing timers, and return how many. Raises BusError.

    A timer is missing if its message was lost between the schedule's entry and the timer: nobody writes both at once.
    It is also missing for a moment after it has fired, so a fire time that has just come is left to its own message.
    """

    def timer_of(key: str) -> str | None:
        try:
            return subjects.timer(*keys.schedule_entry.parsed(key), FIRE_TIMER)
        except InvalidName:
            return None

    bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=2)
    known = await bucket.keys(keys.schedule_entry.all)
    timers = {*await bus.subjects_in(subjects.TIMERS, subjects.timer.pattern(message="fire"))} if known else set()
    untimed = [key for key in known if timer_of(key) not in timers]
    now, found = unix_ms(), 0
    for entry in (await bucket.get_many(untimed)).values():
        schedule = entry.parsed(Schedule)
        if schedule is None or schedule.next_at is None or 0 <= now - schedule.next_at < MAX_LATENESS_S * 1000:
            continue
        await Schedules(bus).set_timer(schedule)
        logger.warning("timer_restored", schedule_id=schedule.schedule_id, tenant=schedule.tenant)
        found += 1
    return found
