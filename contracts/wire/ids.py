"""Ids. They are made here, and those from outside are checked by `checked_id`.

A run, an artifact and a trace have an id of 32 lower-case hexadecimal digits. `new_id` makes a UUIDv7 (RFC 9562), so
ids sort by the time at which they were made. `run_id_for_key` derives an id from an idempotency key, `image_id` from a
run and an image, `started_run_id` from what started a run of a schedule.
"""

import hashlib
import os
import re
import time

from .names import InvalidName, checked_id

__all__ = [
    "InvalidName",
    "checked_id",
    "image_id",
    "new_id",
    "own_session_id",
    "run_id_for_key",
    "run_of_own_session",
    "started_run_id",
    "task_id",
    "unix_ms",
]

_OWN_SESSION = "run-"
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_RANDOM_BITS = (1 << 74) - 1
_VERSION_AND_VARIANT = (0x7 << 76) | (0b10 << 62)


def new_id() -> str:
    """Make a UUIDv7 as 32 hexadecimal digits: 48 bits of Unix milliseconds, then randomness."""
    noise = int.from_bytes(os.urandom(10), "big") & _RANDOM_BITS
    high, low = noise >> 62, noise & ((1 << 62) - 1)
    return f"{unix_ms() << 80 | _VERSION_AND_VARIANT | high << 64 | low:032x}"


def unix_ms() -> int:
    """Return the time in milliseconds since 1970, by the clock of this machine."""
    return time.time_ns() // 1_000_000


def run_id_for_key(tenant: str, key: str) -> str:
    """Derive the id of a run from an idempotency key: the same tenant and key always give the same run."""
    return hashlib.sha256(f"{tenant}\n{key}".encode()).hexdigest()[:32]


def started_run_id(tenant: str, schedule: str, occasion: int | str) -> str:
    """Derive the id of a run of a schedule from its fire time in Unix ms, or from the id of a webhook's delivery."""
    return hashlib.sha256(f"{tenant}\nschedule\n{schedule}\n{occasion}".encode()).hexdigest()[:32]


def image_id(run: str, number: int, sha256: str) -> str:
    """Derive the artifact id of image `number` of a run, so that a repeated request stores it once."""
    return hashlib.sha256(f"{run}\nimage\n{number}\n{sha256}".encode()).hexdigest()[:32]


def task_id(run: str, call_id: str) -> str:
    """Derive the id of the background task that a call of a run spawns. It is the id of the task's own run."""
    return hashlib.sha256(f"{run}\n{call_id}\ntask".encode()).hexdigest()[:32]


def own_session_id(run: str) -> str:
    """Return the id under which a later request continues from a run that was requested without a session."""
    return f"{_OWN_SESSION}{run}"


def run_of_own_session(session_id: str) -> str | None:
    """Return the run that a session id of `own_session_id` continues from; None for any other session."""
    run = session_id.removeprefix(_OWN_SESSION)
    return run if run != session_id and _ID.fullmatch(run) else None
