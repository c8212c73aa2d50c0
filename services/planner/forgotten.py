"""Find messages that NATS holds and delivers to nobody any more, and handle them.

After a disk that was full, or a crash of nats-server, a consumer may take a message for acknowledged that its stream still holds: it lies
below the consumer's acknowledgement floor, so it is never delivered again. What was accepted must end nevertheless.

Rule 1: a message counts as forgotten when it lies below the floor at two looks: one that is being acknowledged is removed in between.
Rule 2: a run whose log has just grown is left alone: somebody works on it.
Rule 3: a request without a log that is older than the retention is removed, not begun: its run was purged.
"""

import asyncio
import contextlib
import random
import time

import structlog
from nats.aio.msg import Msg

from contracts import subjects
from contracts.events import TERMINAL
from contracts.records import EVENTS_HEADER
from contracts.subjects import InvalidName
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of
from services.messaging.errors import BusError
from services.messaging.pull_consumer import Delivery, Handler
from services.messaging.server_clock import unix_seconds
from services.messaging.streams import PLANNER_CONTROL, PLANNER_INBOX, PLANNER_REQUESTS

logger = structlog.get_logger(__name__)

_QUEUES = (
    (subjects.REQUESTS, PLANNER_REQUESTS, subjects.ALL_REQUESTS),
    (subjects.INBOX, PLANNER_INBOX, subjects.ALL_INBOX),
    (subjects.INBOX, PLANNER_CONTROL, subjects.ALL_CONTROL),
)
_SOON_S, _LATER_S, _SELDOM_S = 3.0, 60.0, 3600.0
_BETWEEN_LOOKS_S = 2.0
_BUSY_S = 30.0
_PAGE = 500
_AT_ONCE = 32


class Forgotten:
    """Looks for such messages at the start, after each reconnect, and now and then."""

    def __init__(self, bus: Bus, handler: Handler, retention_days: float) -> None:
        self._bus = bus
        self._handler = handler
        self._retention_s = retention_days * 86_400
        self._hurry = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def watch(self) -> None:
        """Look until cancelled."""
        self._bus.on_reconnect.append(self._on_reconnect)
        pause_s = _SOON_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
                    self._hurry.clear()
                    await asyncio.sleep(_SOON_S * random.uniform(0.5, 1.5))  # noqa: S311, a spread, not a secret
            try:
                pause_s = _LATER_S if await self.sweep() else _SELDOM_S
            except BusError as error:
                logger.debug("forgotten_not_looked_for", reason=str(error))
                pause_s = _SOON_S

    async def _on_reconnect(self) -> None:
        self._hurry.set()

    async def sweep(self) -> int:
        """Handle what is forgotten and return how many messages that were, handled or not. Raises BusError."""
        first = [await self._below_floor(*queue) for queue in _QUEUES]
        if not any(first):
            return 0
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        found = []
        for queue, known in zip(_QUEUES, first, strict=True):
            again = await self._below_floor(*queue) if known else {}
            found += [(queue[0], again[sequence]) for sequence in known.keys() & again.keys()]
        await asyncio.gather(*(self._recover(stream, message) for stream, message in found))
        return len(found)

    async def _below_floor(self, stream: str, consumer: str, pattern: str) -> dict[int, Msg]:
        """Return what the stream holds although the consumer takes it for acknowledged, by sequence."""
        floor = int((await self._bus.api(f"CONSUMER.INFO.{stream}.{consumer}", {}))["ack_floor"]["stream_seq"])
        reader, found, start = await self._bus.reader(stream), dict[int, Msg](), 1
        while start <= floor:
            page, _ = await reader.page(pattern, start, _PAGE)
            found |= {sequence_of(message): message for message in page if sequence_of(message) <= floor}
            start = sequence_of(page[-1]) + 1 if page else floor + 1
        return found

    async def _recover(self, stream: str, message: Msg) -> None:
        """Handle one message as if it had been delivered, and remove it."""
        delivery = Delivery.stored(message, stream)
        async with self._slots:
            try:
                if await self._is_worked_on(delivery):
                    return
                done = await self._is_of_a_purged_run(delivery) or await self._handler(delivery)
                if done:
                    await self._bus.api(f"STREAM.MSG.DELETE.{stream}", {"seq": delivery.sequence, "no_erase": True})
            except BusError as error:
                logger.warning("forgotten_message_left", subject=delivery.subject, reason=str(error))
            except Exception:
                logger.exception("handling_failed", subject=delivery.subject, deliveries=delivery.number)
            else:
                logger.warning("forgotten_message_handled", subject=delivery.subject, removed=done)

    async def _is_worked_on(self, delivery: Delivery) -> bool:
        last = await self._log(delivery)
        if last is None or not TERMINAL.isdisjoint((last.headers or {}).get(EVENTS_HEADER, "").split(",")):
            return False
        at = unix_seconds((last.headers or {})["Nats-Time-Stamp"])
        return time.time() - at < _BUSY_S

    async def _is_of_a_purged_run(self, delivery: Delivery) -> bool:
        old = time.time() - delivery.stored_ns / 1e9 > self._retention_s
        return old and delivery.stream == subjects.REQUESTS and await self._log(delivery) is None

    async def _log(self, delivery: Delivery) -> Msg | None:
        try:
            address = subjects.parse(delivery.subject)
            return await self._bus.last(subjects.RUNS, subjects.log(address.tenant, address.run))
        except InvalidName:
            return None
