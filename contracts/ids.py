"""Ids: made here, never taken from outside without `checked_id`.

A run, an artifact and a trace have an id of 32 lower-case hexadecimal digits. `new_id` makes a UUIDv7 (RFC 9562), so
ids sort by the time at which they were made; `run_id_for_key` derives one from an idempotency key, `image_id` one from
a run and what it shows.
"""

import hashlib
import os
import time

from .names import InvalidName, checked_id

__all__ = ["InvalidName", "checked_id", "image_id", "new_id", "run_id_for_key", "unix_ms"]

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
    """Derive the run's id from the caller's idempotency key: the same tenant and key always name the same run."""
    return hashlib.sha256(f"{tenant}\n{key}".encode()).hexdigest()[:32]


def image_id(run: str, number: int, sha256: str) -> str:
    """Derive the id under which image `number` of a run is kept, with the digest of its bytes: asked for again, it is stored once."""
    return hashlib.sha256(f"{run}\nimage\n{number}\n{sha256}".encode()).hexdigest()[:32]
