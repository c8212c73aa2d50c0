"""Dead letters: messages that cannot be processed go to the stream DEAD, with the reason.

People read it; services never do. Whether a message is poison is decided by how often its handling was started. The
server's delivery count says less: a process with a blocked event loop gets the same message again and again without
starting it. So starts are counted in a stream, which survives a crash, before the message is parsed. A first
delivery stores no count, so it costs nothing.
"""

import structlog

from contracts.wire import subjects
from contracts.wire.base import MAX_MESSAGE_BYTES
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery

logger = structlog.get_logger(__name__)

REASON, SUBJECT, DELIVERIES = "Runwire-Dead-Reason", "Runwire-Dead-Subject", "Runwire-Dead-Deliveries"
_MAX_REASON_CHARACTERS = 500


def _header(text: str) -> str:
    return " ".join(text.split())[:_MAX_REASON_CHARACTERS].encode("ascii", "replace").decode() or "unknown"


async def dead_letter(bus: Bus, delivery: Delivery, reason: str) -> None:
    """Store a delivered message in DEAD, once. The caller acknowledges it afterwards."""
    headers = {REASON: _header(reason), SUBJECT: _header(delivery.subject), DELIVERIES: str(delivery.number)}
    await bus.publish_surely(subjects.dead(delivery.stream), delivery.data, f"dead-{delivery.owner}", headers)
    logger.warning("message_dead_lettered", subject=delivery.subject, reason=reason, deliveries=delivery.number)


async def dead_letter_bytes(bus: Bus, stream: str, subject: str, data: bytes, reason: str, message_id: str) -> None:
    """Store data in DEAD that was not delivered by a consumer: a log record, an announcement. Cut to 1 MiB."""
    headers = {REASON: _header(reason), SUBJECT: _header(subject)}
    await bus.publish_surely(subjects.dead(stream), data[:MAX_MESSAGE_BYTES], message_id, headers)
    logger.warning("message_dead_lettered", subject=subject, reason=reason)


async def count_start(bus: Bus, delivery: Delivery) -> int:
    """Count a start of a handling and return its number, from 1. Retries until the count is stored. Raises Refused."""
    if delivery.number == 1:
        return 1
    subject = subjects.handlings(delivery.stream, str(delivery.sequence))
    last = await bus.last(subjects.HANDLINGS, subject)
    # The first delivery stored no count. Whether its handling was started is unknown, so it is not counted.
    number = int(last.data) + 1 if last is not None else 1
    await bus.publish_surely(subject, b"%d" % number, f"{delivery.owner}.{delivery.number}")
    return number
