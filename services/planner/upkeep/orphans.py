"""Finds messages that a stream holds but its consumer never delivers again, and handles them.

After a full disk, or a crash of nats-server, a consumer may count a message as acknowledged that is still in its
stream. The message is below the consumer's acknowledgement floor, so it is never delivered again. These messages are
orphaned. An accepted run must end nevertheless.

Rule 1: a message is orphaned if two checks find it below the floor. One that is just being acknowledged is gone at the
second check.
Rule 2: a run whose log has grown recently is left alone, since another planner handles it.
Rule 3: a request without a log that is older than the retention is removed, since its run was purged.
"""

import asyncio
import contextlib
import random

import structlog
from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL
from contracts.wire import subjects
from contracts.wire.names import InvalidName, unix_ms
from contracts.wire.records import types_in
from services.messaging.clock import unix_seconds
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.pull_consumer import Delivery, Handler
from services.messaging.reads import sequence_of
from services.shared.runs.last_record import last_record

logger = structlog.get_logger(__name__)

_QUEUES = [(row.kept_in, row.queue, row.all) for row in subjects.PLANNER_QUEUES]

SOON_S, AFTER_FINDING_S, AFTER_FINDING_NOTHING_S = 3.0, 60.0, 3600.0
SECOND_CHECK_AFTER_S = 2.0
RECENT_WRITE_S = 30.0
MESSAGES_PER_PAGE = 500
MAX_CONCURRENT_HANDLINGS = 32


class Orphans:
    """Checks for orphaned messages at start, after each reconnect, and periodically."""

    def __init__(self, bus: Bus, handler: Handler, retention_days: float) -> None:
        self._bus = bus
        self._handler = handler
        self._retention_s = retention_days * 86_400
        self._reconnected = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_HANDLINGS)

    async def watch(self) -> None:
        """Check until cancelled."""

        async def on_reconnect() -> None:
            self._reconnected.set()

        self._bus.on_reconnect.append(on_reconnect)
        pause_s = SOON_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._reconnected.wait()
                    self._reconnected.clear()
                    await asyncio.sleep(SOON_S * random.uniform(0.5, 1.5))  # noqa: S311, a spread, not a secret
            try:
                pause_s = AFTER_FINDING_S if await self.sweep() else AFTER_FINDING_NOTHING_S
            except BusError as error:
                logger.debug("orphans_not_checked", reason=str(error))
                pause_s = SOON_S

    async def sweep(self) -> int:
        """Handle orphaned messages, and return how many were found. Raises BusError."""
        first = [await self._below_floor(*queue) for queue in _QUEUES]
        if not any(first):
            return 0
        await asyncio.sleep(SECOND_CHECK_AFTER_S)
        found = []
        for queue, known in zip(_QUEUES, first, strict=True):
            again = await self._below_floor(*queue) if known else {}
            found += [(queue[0], again[sequence]) for sequence in known.keys() & again.keys()]
        await asyncio.gather(*(self._recover(stream, message) for stream, message in found))
        return len(found)

    async def _below_floor(self, stream: str, consumer: str, pattern: str) -> dict[int, Msg]:
        """Return the stream's messages below the consumer's acknowledgement floor, by sequence."""
        floor = int((await self._bus.api(f"CONSUMER.INFO.{stream}.{consumer}", {}))["ack_floor"]["stream_seq"])
        reader, found, start = await self._bus.reader(stream), dict[int, Msg](), 1
        while start <= floor:
            page, _ = await reader.page(pattern, start, MESSAGES_PER_PAGE)
            found |= {sequence_of(message): message for message in page if sequence_of(message) <= floor}
            start = sequence_of(page[-1]) + 1 if page else floor + 1
        return found

    async def _recover(self, stream: str, message: Msg) -> None:
        """Handle a message as if it were delivered, and remove it."""
        delivery = Delivery.stored(message, stream)
        async with self._slots:
            try:
                last = None
                with contextlib.suppress(InvalidName):
                    address = subjects.parse(delivery.subject)
                    last = await last_record(self._bus, address.tenant, address.run)
                if last is not None and TERMINAL.isdisjoint(types_in(last.headers)):
                    written_at = unix_seconds((last.headers or {})["Nats-Time-Stamp"])
                    if unix_ms() / 1000 - written_at < RECENT_WRITE_S:
                        return
                is_old = unix_ms() / 1000 - delivery.stored_ns / 1e9 > self._retention_s
                is_of_a_purged_run = is_old and delivery.stream == subjects.REQUESTS and last is None
                done = is_of_a_purged_run or await self._handler(delivery)
                if done:
                    await self._bus.api(f"STREAM.MSG.DELETE.{stream}", {"seq": delivery.sequence, "no_erase": True})
            except BusError as error:
                logger.warning("orphaned_message_left", subject=delivery.subject, reason=str(error))
            except Exception:
                logger.exception("handling_failed", subject=delivery.subject, deliveries=delivery.number)
            else:
                logger.warning("orphaned_message_handled", subject=delivery.subject, removed=done)
