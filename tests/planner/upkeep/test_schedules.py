"""A fire time starts one run, whatever is delivered twice or late, and the next timer is set. No model, no planner."""

import pytest

from contracts.runs.inbox import ScheduleDue, ScheduleSet
from contracts.sessions.schedules import Schedule
from contracts.wire.names import started_run_id, unix_ms
from services.messaging.connection import Bus
from services.planner.logs.ownership_watch import Address
from services.planner.upkeep.schedules import Schedules, sweep
from tests.planner.upkeep.written import (
    HOUR_MS,
    MINUTE_MS,
    remove,
    requested,
    schedule_of,
    store,
    stored,
    timer_of,
    withdraw,
)


async def due(bus: Bus, schedule: Schedule, at: int) -> None:
    await Schedules(bus).on_message(Address(schedule.tenant, schedule.schedule_id), ScheduleDue(at=at))


def run_of(schedule: Schedule, at: int | None) -> str:
    return started_run_id(schedule.tenant, schedule.schedule_id, at or 0)


async def test_a_fire_time_requests_its_run_and_sets_the_next_timer(bus: Bus) -> None:
    """With the request that was checked when the schedule was made; the time is that of now."""
    at = unix_ms()
    schedule = await store(bus, schedule_of(cron="* * * * *", at=at))
    await due(bus, schedule, at)
    request, after = await requested(bus, run_of(schedule, at)), await stored(bus, schedule)
    assert request is not None
    assert after is not None
    assert (request.query, request.schedule_id) == ("Now?", schedule.schedule_id)
    assert at <= request.requested_at + 1000
    assert (after.last_at, after.last_run) == (at, request.run_id)
    assert after.next_at is not None
    assert at < after.next_at <= at + MINUTE_MS + 1000
    assert await timer_of(bus, schedule) == after.next_at


async def test_the_same_fire_time_twice_starts_one_run(bus: Bus) -> None:
    """Also when the first request was taken meanwhile, and the server has forgotten its message id."""
    schedule = await store(bus, schedule_of(cron="0 0 1 1 *", at=unix_ms()))
    run = run_of(schedule, schedule.next_at)
    await due(bus, schedule, schedule.next_at or 0)
    await withdraw(bus, run)
    await due(bus, schedule, schedule.next_at or 0)
    assert await requested(bus, run) is None
    after = await stored(bus, schedule)
    assert after is not None
    assert after.next_at == await timer_of(bus, schedule)


async def test_a_deleted_schedule_starts_nothing(bus: Bus) -> None:
    """And its timer goes with the message of its deletion."""
    schedule = await store(bus, schedule_of(at=unix_ms() + HOUR_MS))
    where = Address(schedule.tenant, schedule.schedule_id)
    await Schedules(bus).on_message(where, ScheduleSet())
    assert await timer_of(bus, schedule) == schedule.next_at
    await remove(bus, schedule)
    await due(bus, schedule, schedule.next_at or 0)
    assert await requested(bus, run_of(schedule, schedule.next_at)) is None
    assert await stored(bus, schedule) is None
    await Schedules(bus).on_message(where, ScheduleSet())
    assert await timer_of(bus, schedule) is None


@pytest.mark.parametrize("missed", ["skip", "run_once"])
async def test_missed_fire_times(bus: Bus, missed: str) -> None:
    """No planner was there for three hours and more than a minute: no run; or one, for the newest of the times."""
    newest = unix_ms() // MINUTE_MS * MINUTE_MS - 5 * MINUTE_MS
    cron = f"{newest // MINUTE_MS % 60} * * * *"
    schedule = await store(bus, schedule_of(cron=cron, missed=missed, at=newest - 2 * HOUR_MS))
    await due(bus, schedule, newest - 2 * HOUR_MS)
    requests = [await requested(bus, run_of(schedule, newest - hours * HOUR_MS)) for hours in range(3)]
    assert [request is not None for request in requests] == [missed == "run_once", False, False]
    after = await stored(bus, schedule)
    assert after is not None
    assert after.next_at == newest + HOUR_MS == await timer_of(bus, schedule)


async def test_a_sweep_sets_a_missing_timer_and_leaves_the_others(bus: Bus) -> None:
    """Nothing is set twice; a time that has just come is left to its own message."""
    lost, kept = await store(bus, schedule_of()), await store(bus, schedule_of())
    firing, done = await store(bus, schedule_of(at=unix_ms() - 5000)), await store(bus, schedule_of(next_at=None))
    await Schedules(bus).set_timer(kept)
    before = await bus.last_from_leader("TIMERS", f"timer.default.{kept.schedule_id}.fire")
    assert await sweep(bus) >= 1
    assert await timer_of(bus, lost) == lost.next_at
    assert await bus.last_from_leader("TIMERS", f"timer.default.{kept.schedule_id}.fire") == before
    assert [await timer_of(bus, each) for each in (firing, done)] == [None, None]
    restored = await bus.last_from_leader("TIMERS", f"timer.default.{lost.schedule_id}.fire")
    await sweep(bus)
    assert await bus.last_from_leader("TIMERS", f"timer.default.{lost.schedule_id}.fire") == restored
