"""When schedules fire. Pure: times are Unix ms."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from contracts.sessions.schedules import MAX_LATENESS_S, Schedule

from .moments import local_time, moments_after, newest_until, zone_of

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


def next_times(schedule: Schedule, now: int, count: int = NEXT_SHOWN) -> list[str]:
    """Return the next times in RFC 3339, `count` at most."""
    return [shown(schedule, at) for at in islice(times_after(schedule, now), count)]


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
