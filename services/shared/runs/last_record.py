"""The newest record of a run's log, which shows whether the run has ended."""

from nats.aio.msg import Msg

from contracts.wire import subjects
from services.messaging.connection import Bus


async def last_record(bus: Bus, tenant: str, run: str, attempts: int | None = None) -> Msg | None:
    """Return the newest record, or None for an empty log. A forged one is skipped: it may stand behind the end.

    Retries until answered, or raises Unavailable after `attempts`.
    """
    subject = subjects.log(tenant, run)
    last = await bus.last(subjects.RUNS, subject, attempts)
    if last is None or last.data:
        return last
    stored = await (await bus.reader(subjects.RUNS)).messages(subject, attempts=attempts)
    return next((message for message in reversed(stored) if message.data), last)
