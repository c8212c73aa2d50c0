"""Append to a subject if it has no newer record (optimistic concurrency).

Runs are not locked: the guard rejects a record that was decided from an older state
(docs/architecture.md#what-two-processes-could-both-do). No answer of the server proves that a write is absent. After a
rejection, a time-out, a 503 or "another guarded write in flight", the tail is read, and the record's own id decides: it
is stored, the subject has moved on, or the write is repeated. So records need no message ids.
"""

from services.messaging.connection import Bus
from services.messaging.direct_get import Stored
from services.messaging.errors import WRONG_LAST_SEQUENCE, Moved, Refused, Unsure


async def append(
    bus: Bus, stream: str, subject: str, record: bytes, record_id: str, *, after: int, headers: dict[str, str]
) -> tuple[int, list[Stored]]:
    """Store `record` as the successor of sequence `after` (0: as the first) on an exact `subject`.

    Returns its sequence, and any newer records found meanwhile. Raises Moved when the subject has moved on, Refused for
    any other rejection. An unknown outcome is resolved here, however long the server is unavailable.
    """
    fence = {**headers, "Nats-Expected-Last-Subject-Sequence": str(after)}
    mark = record_id.encode()
    while True:
        try:
            return await bus.publish(subject, record, fence), []
        except Refused as error:
            if error.code != WRONG_LAST_SEQUENCE:
                raise
            refused = True
        except Unsure:
            refused = False
            await bus.retry_pause()
        tail = await (await bus.reader(stream)).read(subject, after + 1)
        # The guard admits this record only as the next one, so it is the first of the tail or not stored.
        if tail and mark in tail[0][1]:
            return tail[0][0], tail[1:]
        if tail or refused:
            raise Moved(tail)
