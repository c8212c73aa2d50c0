"""Which fire time starts a run, and which is next. No server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.sessions.schedules import Schedule
from services.shared.schedules.fire_times import Firing, firing, next_times
from tests.planner.upkeep.written import HOUR_MS, MINUTE_MS, schedule_of

NOON = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp() * 1000)


def hourly(**fields: Any) -> Schedule:
    """A schedule of every full hour, whose next fire time is noon."""
    return schedule_of(cron="0 * * * *", at=NOON, **fields)


@pytest.mark.parametrize("missed", ["skip", "run_once"])
@pytest.mark.parametrize("late_ms", [-5000, 0, 1, MINUTE_MS])
def test_a_fire_time_that_has_come_starts_a_run(missed: str, late_ms: int) -> None:
    """Also where the clock of the planner is behind."""
    assert firing(hourly(missed=missed), NOON, NOON + late_ms) == Firing(NOON, NOON + HOUR_MS)


def test_a_missed_fire_time_is_skipped_or_started_once() -> None:
    """The newest stands for all."""
    for hours in range(4):
        newest = NOON + hours * HOUR_MS
        now = newest + MINUTE_MS + 1
        assert firing(hourly(missed="skip"), NOON, now) == Firing(None, newest + HOUR_MS)
        assert firing(hourly(missed="run_once"), NOON, now) == Firing(newest, newest + HOUR_MS)


def test_the_next_times_are_local() -> None:
    """Three of a cron expression, one of a one-off, none of a webhook."""
    nightly = schedule_of(cron="30 2 * * *", time_zone="Europe/Berlin", at=NOON)
    before = int(datetime(2026, 3, 28, 0, tzinfo=UTC).timestamp() * 1000)
    assert next_times(nightly, before) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert next_times(schedule_of(at=NOON), NOON - 1) == ["2026-11-23T12:00:00+00:00"]
    assert next_times(schedule_of(at=None, next_at=None), NOON) == []


def test_a_month_of_missed_minutes_costs_nothing() -> None:
    """They are not counted one by one."""
    schedule = schedule_of(cron="* * * * *", at=0, missed="run_once")
    assert firing(schedule, 0, NOON) == Firing(NOON, NOON + MINUTE_MS)
