"""Write a message only while a subject has no newer one than its writer has read (optimistic concurrency).

Runs are not locked: the guard rejects a record that was decided from an older state
(docs/internals.md#what-two-processes-could-both-do). No answer of the server proves that a write is absent. After a
time-out, a 503 or "another guarded write in flight", the subject is read back as the stream's leader has it, and the
message itself decides: it is stored, or the write is repeated. So a message has to be unlike any other on its subject,
for example by an id that it contains.
"""

from itertools import count
from typing import NamedTuple

from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.errors import WRONG_LAST_SEQUENCE, Outdated, Refused, Unsure
from services.messaging.nats_patches import Headers
from services.messaging.reads import sequence_of


class Guard(NamedTuple):
    """The newest message of a subject, by its stream sequence; 0: it has none."""

    subject: str
    sequence: int


async def write(
    bus: Bus,
    subject: str,
    data: bytes,
    guard: Guard,
    *,
    since: int | None = None,
    headers: Headers = None,
    attempts: int | None = None,
) -> int:
    """Store `data` on an exact subject if `guard` holds, and return its sequence. Guard and subject are in one stream.

    `since`: the newest known sequence of `subject`, needed if the guard is on another subject. An unknown outcome is
    resolved here, however long the server is unavailable, or up to `attempts`. Raises Outdated when the guard does not
    hold, Refused for any other rejection, and after `attempts` Unsure or Unavailable.
    """
    headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": str(guard.sequence)}
    if guard.subject != subject:
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = guard.subject
    start = (guard.sequence if since is None else since) + 1
    for tried in count(1):
        try:
            return await bus.publish(subject, data, headers)
        except Refused as error:
            if error.code != WRONG_LAST_SEQUENCE:
                raise
            # Only an earlier attempt of this write can be stored; it is then the newer message that the guard met.
            stored = await _stored(bus, subject, data, start, attempts) if tried > 1 else None
            if stored is None:
                raise Outdated from error
            return stored
        except Unsure:
            if tried == attempts:
                raise
        await bus.retry_pause(tried, is_bounded=attempts is not None)
        stored = await _stored(bus, subject, data, start, attempts)
        if stored is not None:
            return stored
    raise AssertionError


async def _stored(bus: Bus, subject: str, data: bytes, start: int, attempts: int | None) -> int | None:
    """Return the sequence of the message with these bytes from `start` on, by the stream's leader; None without one."""
    reader = await bus.reader(str(subjects.stream_of(subject)))
    found = await reader.current(subject, start, attempts=attempts)
    return next((sequence_of(message) for message in found if message.data == data), None)
