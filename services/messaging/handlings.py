"""Count how often the handling of a message was started. The count decides whether the message is poison.

The server's delivery count says less: a process with a blocked event loop gets the same message again and again without
starting it. So starts are counted in a stream, which survives a crash, before the message is parsed. The first delivery
of a message costs nothing.
"""

from contracts import subjects
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery


async def begin(bus: Bus, delivery: Delivery) -> int:
    """Count a start and return its number, from 1. Retries until the count is stored. Raises Refused."""
    if delivery.number == 1:
        return 1
    subject = subjects.handlings(delivery.stream, delivery.sequence)
    last = await bus.last(subjects.HANDLINGS, subject)
    # A first handling stores no count. Whether it was started is unknown, so it is not counted.
    number = int(last.data) + 1 if last is not None else 1
    await bus.publish_surely(subject, b"%d" % number, f"{delivery.owner}.{delivery.number}")
    return number
