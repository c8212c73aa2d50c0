"""Cron expressions against a walk over every minute, around changes of clocks; which fire time is next. No server."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.sessions.schedules import Schedule
from services.shared import schedules
from tests.planner.upkeep.written import HOUR_MS, MINUTE_MS, schedule_of

ZONES = [
    *("Africa/Cairo", "Africa/Casablanca", "America/New_York", "America/Santiago", "America/St_Johns"),
    *("Antarctica/Troll", "Asia/Gaza", "Asia/Tehran", "Australia/Lord_Howe", "Europe/Berlin", "Europe/Dublin"),
    *("Pacific/Apia", "Pacific/Chatham", "America/Scoresbysund", "Asia/Kathmandu", "UTC"),
]
"""Clocks that change by half an hour, by two hours, by a day, before midnight, during winter, and never."""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


@cache
def changes(name: str) -> list[int]:
    """The moments from 2000 to 2037 at which the clocks of a zone change; without any, a single day."""
    zone = schedules.zone_of(name)
    found, at = [], datetime(2000, 1, 1, tzinfo=UTC)
    while at.year < 2037:
        after = at + timedelta(days=1)
        if at.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            moment = at
            while moment.astimezone(zone).utcoffset() == at.astimezone(zone).utcoffset():
                moment += timedelta(minutes=1)
            found.append(int(moment.timestamp() * 1000))
        at = after
    return found or [int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)]


def values(field: str, low: int, high: int) -> set[int]:
    """The values that a field of a cron expression names."""
    if "," in field:
        return set().union(*(values(part, low, high) for part in field.split(",")))
    span, _, step = field.partition("/")
    if span == "*":
        first, last = low, high
    else:
        begin, _, end = span.partition("-")
        first, last = int(begin), int(end or begin)
    return set(range(first, last + 1, int(step or 1)))


@cache
def fields_of(cron: str) -> list[set[int]]:
    return [values(field, low, high) for field, (low, high) in zip(cron.split(), RANGES, strict=True)]


def names(cron: str, local: datetime) -> bool:
    """Whether an expression names a local minute; of two restricted days one is enough."""
    minute, hour, day, month, weekday = fields_of(cron)
    if local.minute not in minute or local.hour not in hour or local.month not in month:
        return False
    is_day, is_weekday = local.day in day, bool({local.isoweekday(), local.isoweekday() % 7} & weekday)
    both = "*" in (cron.split()[2][0], cron.split()[4][0])
    return (is_day and is_weekday) if both else (is_day or is_weekday)


def walked(cron: str, zone: ZoneInfo, after: int, until: int) -> list[int]:
    """The moments of an expression in a span, by looking at every minute."""
    found = []
    before = schedules.local_time(after, zone).replace(tzinfo=None)
    for at in range(after + MINUTE, until + 1, MINUTE):
        aware = schedules.local_time(at, zone)
        local = aware.replace(tzinfo=None)
        skipped, minute = [], before + timedelta(minutes=1)
        while minute < local:
            skipped.append(minute)
            minute += timedelta(minutes=1)
        own = [local] if aware.fold == 0 else []
        if any(names(cron, each) for each in (*skipped, *own)):
            found.append(at)
        before = local
    return found


@st.composite
def crons(draw: st.DrawFn) -> str:
    """Expressions that name minutes of most days, or of few."""

    def field(low: int, high: int) -> str:
        one = draw(st.integers(low, high - 1))
        two = draw(st.integers(one + 1, high))
        return draw(st.sampled_from([str(one), f"{one},{two}", f"{one}-{two}", "*", f"*/{one + 1}", f"{one}-{two}/2"]))

    days = draw(st.sampled_from(["* * *", "* * *", "* * 0", "* * 1-5", "1-15 * *", "13 * 5", "*/2 * *", "* 3,10 *"]))
    return f"{field(0, 59)} {field(0, 3)} {days}" if draw(st.booleans()) else f"{field(0, 59)} {field(0, 23)} {days}"


@given(crons(), st.sampled_from(ZONES), st.integers(0, 10_000), st.integers(0, 26 * 60))
@example("30 2 * * *", "Europe/Berlin", 0, 600)
@example("30 1 * * *", "Antarctica/Troll", 1, 600)
@example("0 12 * * *", "Pacific/Apia", 4, 100)
def test_the_moments_are_those_of_a_walk_over_every_minute(cron: str, name: str, number: int, minutes: int) -> None:
    """Each once, in order, from any moment before a change of the clocks to a day after it; and backwards."""
    zone = schedules.zone_of(name)
    change = changes(name)[number % len(changes(name))]
    after = change - minutes * MINUTE
    until = change + DAY + 2 * HOUR
    expected = walked(cron, zone, after, until)
    assert [*takewhile(lambda at: at <= until, schedules.moments_after(cron, zone, after))] == expected
    for now in (change - MINUTE, change, change + 30 * MINUTE, change + HOUR, change + 2 * HOUR, until):
        until_now = [at for at in expected if at <= now]
        if until_now:
            assert schedules.newest_until(cron, zone, now) == until_now[-1]


@pytest.mark.parametrize(
    ("zone", "local", "moment"),
    [
        ("Europe/Berlin", "2026-03-29T01:59", "2026-03-29T00:59:00Z"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-03-29T02:59", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30:00Z"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30:00Z"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00:00Z"),
        ("UTC", "2026-02-28T23:59", "2026-02-28T23:59:00Z"),
    ],
)
def test_a_local_time_is_one_moment(zone: str, local: str, moment: str) -> None:
    """One that does not exist: the next minute that does. One that exists twice: the first."""
    wanted = int(datetime.fromisoformat(moment).timestamp() * 1000)
    assert schedules.moment_of(datetime.fromisoformat(local), schedules.zone_of(zone)) == wanted
    assert schedules.moment_from_text(local, schedules.zone_of(zone)) == wanted
    assert schedules.moment_from_text(moment, schedules.zone_of(zone)) == wanted


@pytest.mark.parametrize("fraction", ["", ".000999", ".000123456789"])
def test_a_time_is_read_in_every_form_of_rfc_3339(fraction: str) -> None:
    """Either case, and any number of digits after the second."""
    wanted = schedules.moment_from_text("2027-10-31T02:30:00+00:00", None)
    for text in (f"2027-10-31T02:30:00{fraction}Z", f"2027-10-31t02:30:00{fraction}z"):
        assert schedules.moment_from_text(text, None) == wanted


@pytest.mark.parametrize("text", ["", "now", "2026-12-01", "2026-12-01T09:00:00+25:00", "2026-13-01T09:00Z", "12:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match="time"):
        schedules.moment_from_text(text, schedules.zone_of("UTC"))


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Atlantis", "../zones", "/etc/localtime", "zones"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    """Also what is a file, and no zone."""
    with pytest.raises(ValueError, match="time zone"):
        schedules.zone_of(name)


@given(st.text("0123456789*,-/#?LWMONJAN @²", max_size=20))
def test_any_text_is_a_cron_expression_or_refused(text: str) -> None:
    """With one reason, and no other error; what is taken has a time, or none in 50 years."""
    for cron in (text, f"{text} * * * *", f"0 0 {text} * *", f"0 0 * * {text}"):
        try:
            schedules.checked_cron(cron)
        except ValueError:
            continue
        next(schedules.moments_after(cron, schedules.zone_of("UTC"), 1_790_000_000_000), None)


NOON = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp() * 1000)


def hourly(**fields: Any) -> Schedule:
    """A schedule of every full hour, whose next fire time is noon."""
    return schedule_of(cron="0 * * * *", at=NOON, **fields)


@pytest.mark.parametrize("missed", ["skip", "run_once"])
@pytest.mark.parametrize("late_ms", [-5000, 0, 1, MINUTE_MS])
def test_a_fire_time_that_has_come_starts_a_run(missed: str, late_ms: int) -> None:
    """Also where the clock of the planner is behind."""
    assert schedules.firing(hourly(missed=missed), NOON, NOON + late_ms) == schedules.Firing(NOON, NOON + HOUR_MS)


def test_a_missed_fire_time_is_skipped_or_started_once() -> None:
    """The newest stands for all."""
    for hours in range(4):
        newest = NOON + hours * HOUR_MS
        now = newest + MINUTE_MS + 1
        assert schedules.firing(hourly(missed="skip"), NOON, now) == schedules.Firing(None, newest + HOUR_MS)
        assert schedules.firing(hourly(missed="run_once"), NOON, now) == schedules.Firing(newest, newest + HOUR_MS)
