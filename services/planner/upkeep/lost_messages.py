"""Finds messages that nobody handles any more: those of a killed planner, and those that their consumer has lost.

A planner that was killed holds messages, which NATS would deliver again only after the acknowledgement time.

Rule 1: a planner that holds messages says which, every twentieth of `ack_wait_s`. HELD keeps the newest list of each.
A list without a change is stored every eighth of it.
Rule 2: a planner whose lists have stopped is asked for. It is dead if nobody has subscribed to its subject: the server
closes the connection of a killed process at once, while one that is slow or stopped stays connected.
Rule 3: one survivor claims the list by a guarded write, and refuses each message on it (`-NAK`) in place of the dead.
Rule 4: a list older than half of `ack_wait_s` proves nothing, since its messages may have been delivered again. Nor
does silence for so long after this planner lost its connection: the server was restarted, and others are connecting.

After a full disk, or a crash of nats-server, a consumer may count a message as acknowledged that is still in its
stream. The message is below the consumer's acknowledgement floor, so it is never delivered again. These messages are
orphaned. An accepted run must end nevertheless.

Rule 5: a message is orphaned if two checks find it below the floor. One that is just being acknowledged is gone at the
second check.
Rule 6: a run whose log has grown recently is left alone, since another planner handles it.
Rule 7: a request without a log that is older than the retention is removed, since its run was purged.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Sequence

import orjson
import structlog
from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL
from contracts.wire import subjects
from contracts.wire.names import InvalidName, new_id, unix_ms
from contracts.wire.records import types_in
from services.messaging import guarded_write
from services.messaging.connection import Bus, unix_seconds
from services.messaging.errors import BusError
from services.messaging.nats_connection import Subscription
from services.messaging.pull_consumer import Delivery, Handler, PullConsumer
from services.messaging.reads import sequence_of
from services.runtime.newest import Newest
from services.runtime.tasks import cancelled
from services.shared import metrics
from services.shared.runs.last_record import last_record

logger = structlog.get_logger(__name__)

_LISTS_PER_ACK_WAIT = 20
_MISSED_LISTS = 3
"""After so many a planner is asked for. One that has lost its connection is back by then, as a rule."""
_MAX_DEAD = 1000
_NONE = b"[]"


class HeldMessages:
    """The messages that this planner and the others hold."""

    def __init__(self, bus: Bus, consumers: Sequence[PullConsumer]) -> None:
        self._bus = bus
        self._consumers = consumers
        self._instance = new_id()
        self._every_s = bus.settings.ack_wait_s / _LISTS_PER_ACK_WAIT
        self._proof_s = bus.settings.ack_wait_s / 2
        """For so long a list proves something (rule 4)."""
        self._first_up_since = bus.up_since
        self._heard: dict[str, float] = {}
        """Other planner that holds messages -> when it last said so, on the monotonic clock."""
        self._dead = Newest[str, bool](_MAX_DEAD)
        self._subscriptions: list[Subscription] = []
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> "HeldMessages":
        """Be found, and hear of the others."""
        for subject in (subjects.planner_here(self._instance), subjects.held.all):
            self._subscriptions.append(await self._bus.subscribe(subject, self._on_list))
        self._watching = self._bus.tasks.keep("held_messages", self._watch)
        return self

    async def stop(self) -> None:
        """From now on this planner counts as gone, and others get what it has not acknowledged."""
        await cancelled(self._watching)
        for subscription in self._subscriptions:
            await subscription.stop()

    async def _watch(self) -> None:
        """List the held messages and ask for silent planners, until cancelled."""
        reader = await self._bus.reader(subjects.HELD)
        for left in await self._bus.until_answered(lambda: reader.latest(subjects.held.all)):
            (instance,) = subjects.held.parsed((left.headers or {})["Nats-Subject"])
            self._heard.setdefault(instance, -math.inf)
        body, number, stored_at = _NONE, 0, -math.inf
        while True:
            before, body = body, orjson.dumps([reply for consumer in self._consumers for reply in consumer.held])
            if body != before or time.monotonic() - stored_at > self._proof_s / 4:
                number, stored_at = number + 1, time.monotonic()
            if (before, body) != (_NONE, _NONE):
                # The others hear each list; NATS stores one of those with the same id.
                message_id = {"Nats-Msg-Id": f"{self._instance}-{number}"}
                await self._bus.send(subjects.held(self._instance), body, message_id)
            now, up_since = time.monotonic(), self._bus.up_since
            if up_since == self._first_up_since or now - up_since > self._proof_s:
                silent = [each for each, at in self._heard.items() if now - at > _MISSED_LISTS * self._every_s]
                await asyncio.gather(*map(self._ask_for, silent))
            self._heard = {each: at for each, at in self._heard.items() if now - at < self._proof_s}
            await asyncio.sleep(self._every_s)

    async def _on_list(self, message: Msg) -> None:
        """Note that a planner holds messages; nobody answers on `planner_here`."""
        try:
            (instance,) = subjects.held.parsed(message.subject)
        except InvalidName:
            return
        if message.data == _NONE:
            self._heard.pop(instance, None)
        elif instance != self._instance:
            self._heard[instance] = time.monotonic()
            if instance in self._dead:
                del self._dead[instance]
                metrics.FALSE_DEATHS.inc()
                logger.error("planner_was_not_dead", instance=instance)

    async def _ask_for(self, instance: str) -> None:
        try:
            if await self._bus.has_nobody(subjects.planner_here(instance), wait_s=self._every_s):
                self._heard.pop(instance, None)
                await self._take_back(instance)
        except BusError as error:
            logger.debug("messages_not_taken_back", instance=instance, reason=str(error))

    async def _take_back(self, instance: str) -> None:
        """Have the messages of a dead planner delivered again. Raises BusError: then they wait for `ack_wait_s`."""
        subject = subjects.held(instance)
        newest = await self._bus.last(subjects.HELD, subject, attempts=1)
        if newest is None or newest.data in {b"", _NONE} or self._is_old(newest):
            return
        guard = guarded_write.Guard(subject, sequence_of(newest))
        await guarded_write.write(self._bus, subject, _NONE, guard, attempts=1)
        if self._is_old(newest):
            return  # This process was stopped meanwhile.
        replies = orjson.loads(newest.data)
        for reply in replies:
            await self._bus.send(reply, b"-NAK")
        self._dead[instance] = True
        logger.warning("killed_planner_found", instance=instance, messages=len(replies))

    def _is_old(self, message: Msg) -> bool:
        return unix_ms() / 1000 - unix_seconds((message.headers or {})["Nats-Time-Stamp"]) > self._proof_s


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
        self._bus.on_reconnect.append(self._reconnected.set)
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
