"""How often the handling of a message was begun: what decides whether it is poison.

The server's number of deliveries says less: a process whose loop stands still is sent the same message again and again and begins none of
it. So what came before is counted here, where a crash leaves it, before anything of the message is read; the first delivery of a message
costs nothing.
"""

from contracts import subjects
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery


async def begin(bus: Bus, delivery: Delivery) -> int:
    """Count a handling and return its number, from 1. Repeats until the count is stored. Raises Refused."""
    if delivery.number == 1:
        return 1
    subject = subjects.handlings(delivery.stream, delivery.sequence)
    last = await bus.last(subjects.HANDLINGS, subject)
    # A first handling leaves no count: whether it began, nobody knows, so it counts for nothing.
    number = int(last.data) + 1 if last is not None else 1
    await bus.publish_surely(subject, b"%d" % number, f"{delivery.owner}.{delivery.number}")
    return number
