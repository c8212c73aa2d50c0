"""The moments of local times and of cron expressions, and when schedules fire. Pure: a moment is a Unix time in ms.

`cronsim` enumerates the local times of a cron expression, without a zone: given one, it follows Debian's cron, whose
`*/30 * * * *` fires in both of two equal hours. Here each local time becomes a moment:

Rule 1: a local time that does not exist, since clocks were put forward, means the next minute that does. If the
expression names that minute too, both are one moment.
Rule 2: a local time that exists twice, since clocks were put back, means the first of the two moments.
Rule 3: zones come from the package tzdata, so all processes have the same rules, whatever their machines hold.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from contracts.sessions.schedules import MAX_LATENESS_S, Schedule

CRON_FIELDS = 5
_MINUTE, _MS = timedelta(minutes=1), timedelta(milliseconds=1)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?", re.ASCII
)
_YEARS = range(1971, 2201)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def checked_cron(expression: str) -> str:
    """Return a cron expression, or raise ValueError with the reason."""
    if len(expression.split()) != CRON_FIELDS:
        raise ValueError("expected five fields: minute, hour, day of the month, month, day of the week")
    try:
        CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001, cronsim counts local times
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {error}") from error
    return expression


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone. Raises ValueError for a name that the IANA database does not have."""
    if name not in _zone_names():
        raise ValueError("is no name of a time zone in the IANA database; one looks like Europe/Berlin")
    with resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def moment_of(local: datetime, zone: ZoneInfo) -> int:
    """Return the moment of a local time without a zone, by rules 1 and 2."""
    first = local.replace(tzinfo=zone, fold=0)
    moment = first.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) != local:
        # It does not exist: the two offsets lead to a moment before the clocks were put forward, and to one after it.
        before, after = local.replace(tzinfo=zone, fold=1).astimezone(UTC), moment
        offset = before.astimezone(zone).utcoffset()
        while after - before > timedelta(seconds=1):
            middle = before + (after - before) // 2
            before, after = (middle, after) if middle.astimezone(zone).utcoffset() == offset else (before, middle)
        moment = after.replace(microsecond=0)
        moment += (_MINUTE - timedelta(seconds=moment.second)) if moment.second else timedelta()
    return (moment - _EPOCH) // _MS


def moment_from_text(text: str, zone: ZoneInfo | None) -> int:
    """Return the moment of an RFC 3339 time. `zone`: of one without an offset. Raises ValueError with the reason."""
    if not _TIME.fullmatch(text):
        raise ValueError("is no time as RFC 3339 has it; one looks like 2026-12-01T09:00:00+01:00")
    try:
        at = datetime.fromisoformat(text.upper())  # Digits beyond microseconds are cut.
    except ValueError as error:
        raise ValueError(f"is no time that exists: {error}") from error
    if at.year not in _YEARS:
        raise ValueError(f"lies outside the years {_YEARS[0]} to {_YEARS[-1]}")
    if at.tzinfo is not None:
        return (at - _EPOCH) // _MS
    if zone is None:
        raise ValueError("has no offset from UTC, and there is no `time_zone` either")
    return moment_of(at, zone)


def local_time(at: int, zone: ZoneInfo) -> datetime:
    """Return a moment as an aware local time."""
    return (_EPOCH + at * _MS).astimezone(zone)


def moments_after(cron: str, zone: ZoneInfo, after: int) -> Iterator[int]:
    """Yield the moments of a cron expression later than `after`, in order."""
    for local in CronSim(cron, local_time(after, zone).replace(tzinfo=None)):
        moment = moment_of(local, zone)
        if moment > after:
            yield moment
            after = moment


def newest_until(cron: str, zone: ZoneInfo, now: int) -> int | None:
    """Return the newest moment of a cron expression up to `now`; None without one in the last 50 years."""
    local = local_time(now, zone)
    # Where clocks are put back, 02:30 comes twice: at the second 02:30, the first 02:45 has already been.
    repeated = (local.replace(fold=0).utcoffset() or timedelta()) - (local.utcoffset() or timedelta())
    for earlier in CronSim(cron, local.replace(tzinfo=None) + repeated + _MINUTE, reverse=True):
        moment = moment_of(earlier, zone)
        if moment <= now:
            return moment
    return None


NEXT_SHOWN = 3


class Firing(NamedTuple):
    """What a due schedule does: the fire time that starts a run, and the next one. None: there is none."""

    at: int | None
    next_at: int | None


def times_after(schedule: Schedule, after: int) -> Iterator[int]:
    """Yield the fire times of a schedule later than `after`, in order. A webhook has none."""
    if schedule.cron is not None:
        yield from moments_after(schedule.cron, zone_of(schedule.time_zone or "UTC"), after)
    elif schedule.at is not None and schedule.at > after:
        yield schedule.at


def first_after(schedule: Schedule, after: int) -> int | None:
    """Return the first fire time later than `after`."""
    return next(times_after(schedule, after), None)


def next_times(schedule: Schedule, now: int) -> list[str]:
    """Return the next times in RFC 3339, three at most."""
    return [shown(schedule, at) for at in islice(times_after(schedule, now), NEXT_SHOWN)]


def shown(schedule: Schedule, at: int) -> str:
    """Return a time in RFC 3339, in the schedule's time zone."""
    return local_time(at, zone_of(schedule.time_zone or "UTC")).isoformat(timespec="seconds")


def firing(schedule: Schedule, due: int, now: int) -> Firing:
    """Return what follows when the fire time `due` is handled at `now`.

    If later fire times have come as well, the newest stands for all: a schedule does not catch up run by run.
    """
    now = max(now, due)  # Clocks differ.
    newest = due
    if schedule.cron is not None:
        newest = max(due, newest_until(schedule.cron, zone_of(schedule.time_zone or "UTC"), now) or 0)
    is_missed = now - newest > MAX_LATENESS_S * 1000
    return Firing(None if is_missed and schedule.missed == "skip" else newest, first_after(schedule, now))
