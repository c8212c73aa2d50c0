"""Which fire time starts a run, and which is next. No server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.sessions.schedules import Schedule
from services.shared.schedules import Firing, firing
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
