"""Process messages of a durable consumer: a standing pull that never requests more than the free slots.

Rule 1: the handler's result decides. True acknowledges. False abandons the message, because another process owns it
now: no ack, no nak, no heartbeat. An exception abandons it too; it is redelivered after the acknowledgement time.
Rule 2: each message in progress gets heartbeats. If it is redelivered to the same process all the same, the delivery
takes the place of the earlier one, and no slot: else a process that was late once would have no slots left.
Rule 3: where slots are shared (`sharer`), no tenant takes more than its share; further messages are returned to the
server for a while.
Rule 4: `fetch()` hangs after a reconnect, and batches hold messages that other instances could process. This pull is
renewed on reconnect, and the server's idle heartbeats detect what the reconnect callback misses.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson
import structlog
from nats.aio.msg import Msg
from prometheus_client import Gauge, Histogram

from contracts.wire import subjects
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus, unix_seconds
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import start_in

logger = structlog.get_logger(__name__)


class Shares:
    """Shares a limited number of slots among tenants, so that no tenant can take all of them.

    A tenant may take another slot as long as it holds no more than are free. So one tenant alone gets half of them, and
    a second one finds the other half; as work ends, two converge to a third each. Running work is never interrupted,
    and tenants need not be known in advance. (Switches share buffers in this way, called "dynamic thresholds".)
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()

    def take(self, tenant: str) -> bool:
        """Take a slot, if the tenant's share allows it."""
        if self._free <= 0 or self._held[tenant] > self._free:
            return False
        self._free -= 1
        self._held[tenant] += 1
        return True

    def give_back(self, tenant: str) -> None:
        """Return a slot."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]


_PULL_EXPIRES_S = 30.0
_IDLE_HEARTBEAT_S = 2.0
_NS_PER_S = 1_000_000_000
_RETRY_S = 0.1
_RETURN_DELAY_S = 1.0
"""Seconds after which a message returns that was sent back because its share of the slots is taken."""
_SHORT_ACK_TOKENS = 9
_HEARTBEAT_GROUPS = 10
"""Heartbeats are sent in this many groups, one after another: thousands at once would block other work."""

MESSAGE_AGE_SECONDS = Histogram(
    "runwire_message_age_seconds",
    "Seconds from the storage of a message to the start of its handling, by consumer: the age of the queue",
    ["consumer"],
    buckets=(0.002, 0.01, 0.05, 0.25, 1, 5, 30, 300),
)
SLOTS_TAKEN = Gauge("runwire_messages_in_progress", "Messages that are handled now, by consumer", ["consumer"])


Place = tuple[str, int, int, int]
"""Of a delivered message: its stream, the number of the delivery, its sequence, and when it was stored, in Unix ns."""


def place_of(reply: str) -> Place:
    """Parse the reply subject of a delivery.

    It is `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<number>.<sequence>.<consumer sequence>.<ns>.<pending>`.
    One more token may follow.
    """
    tokens = reply.split(".")
    stream, _, number, sequence, _, at_ns = tokens[2 if len(tokens) == _SHORT_ACK_TOKENS else 4 :][:6]
    return stream, int(number), int(sequence), int(at_ns)


class Delivery:
    """One delivery of one message. `owner` identifies the message; `number` estimates how often it was delivered.

    How often its handling was started is counted by `dead_letters.count_start`. `stored_ns`: when the stream stored it,
    Unix ns by the server's clock.
    """

    __slots__ = ("data", "headers", "number", "owner", "reply", "sequence", "stored_ns", "stream", "subject")

    def __init__(self, message: Msg, place: Place | None = None) -> None:
        self.reply = message.reply
        self.subject = message.subject
        self.data = message.data
        self.headers: dict[str, str] = message.headers or {}
        self.stream, self.number, self.sequence, self.stored_ns = place or place_of(message.reply)
        self.owner = f"{self.stream}:{self.sequence}"

    @classmethod
    def stored(cls, message: Msg, stream: str) -> "Delivery":
        """Build a repeated delivery from a message that was read back from a stream. It cannot be acknowledged."""
        headers = message.headers or {}
        at_ns = int(unix_seconds(headers["Nats-Time-Stamp"]) * 1e9)
        client = message._client  # noqa: SLF001, it takes no other
        original = Msg(client, subject=headers["Nats-Subject"], data=message.data, headers=headers)
        return cls(original, (stream, 2, int(headers["Nats-Sequence"]), at_ns))


Handler = Callable[[Delivery], Awaitable[bool]]


class PullConsumer:
    """Runs `handler` for each message of a consumer, at most `slots` at once.

    `sharer`: maps a subject to the share that it counts for.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        consumer: str,
        handler: Handler,
        slots: int,
        sharer: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._bus = bus
        self._handler = handler
        self._slots = slots
        self._sharer = sharer
        self._shares = Shares(slots)
        self._name = f"{stream.lower()}_{consumer}"
        self._api = subjects.next_messages(stream, consumer)
        self._held: dict[int, Delivery] = {}
        """Sequence of a message in progress -> its last delivery."""
        self._holds = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._requested = self._epoch = 0
        self._last_message_at = time.monotonic()
        self._stopping = False
        self._subscription: Subscription | None = None
        self._background: list[asyncio.Task[None]] = []
        self._inbox = ""

    @property
    def busy(self) -> int:
        """Messages in progress."""
        return len(self._held)

    @property
    def held(self) -> list[str]:
        """The reply subjects of the messages in progress: they are acknowledged or refused there."""
        return [delivery.reply for delivery in self._held.values()]

    async def start(self) -> "PullConsumer":
        """Subscribe and request messages."""
        SLOTS_TAKEN.labels(self._name).set_function(lambda: self.busy)
        self._inbox = self._bus.nc.new_inbox()
        self._subscription = await self._bus.subscribe(f"{self._inbox}.*", self._on_message)
        self._bus.on_reconnect.append(self._renew)
        self._background = [
            self._bus.tasks.keep(f"{self._name}_pull", self._check_pull),
            self._bus.tasks.keep(f"{self._name}_heartbeats", self._send_heartbeats),
        ]
        await self._request()
        return self

    async def stop(self, grace_s: float) -> None:
        """Request no more messages. Those in progress have `grace_s` seconds; then they are left, and redelivered."""
        self._stopping = True
        if self._renew in self._bus.on_reconnect:
            self._bus.on_reconnect.remove(self._renew)
        if self._subscription is not None:
            await self._subscription.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in [*self._tasks, *self._background]:
            task.cancel()

    async def _renew(self) -> None:
        self._epoch += 1
        self._requested = 0
        self._last_message_at = time.monotonic()
        await self._request()

    async def _request(self) -> None:
        want = self._slots - self.busy - self._requested
        if want <= 0 or self._stopping:
            return
        self._requested += want
        body = {
            "batch": want,
            "expires": int(_PULL_EXPIRES_S * _NS_PER_S),
            "idle_heartbeat": int(_IDLE_HEARTBEAT_S * _NS_PER_S),
        }
        if not await self._bus.send(self._api, orjson.dumps(body), reply=f"{self._inbox}.{self._epoch}"):
            self._requested = 0  # Disconnected: _renew requests again.

    async def _on_message(self, message: Msg) -> None:
        self._last_message_at = time.monotonic()
        status = message.headers.get("Status") if message.headers and not message.data else None
        if status is not None:
            await self._on_status(message, status)
            return
        if self._stopping:
            await self._bus.send(message.reply, b"-NAK")  # Not started: others get it at once.
            return
        self._requested = max(0, self._requested - 1)
        delivery = Delivery(message)
        if "Nats-Subject" in delivery.headers:  # Stored from an answer of the server (`nats_patches`).
            logger.error("forged_message_removed", subject=delivery.subject, sequence=delivery.sequence)
            await self._bus.send(delivery.reply, b"+TERM")
            await self._request_when_low()
            return
        if delivery.sequence in self._held:
            self._held[delivery.sequence] = delivery
            await self._request_when_low()
            return
        share = self._sharer(delivery.subject)
        if share and not self._shares.take(share):
            # It goes back unstarted, with a random delay, so that not all return at once.
            delay_s = _RETURN_DELAY_S * random.uniform(0.75, 1.25)  # noqa: S311, a spread, not a secret
            await self._bus.send(delivery.reply, b"-NAK " + orjson.dumps({"delay": int(delay_s * _NS_PER_S)}))
            await self._request_when_low()
            return
        self._held[delivery.sequence] = delivery
        self._holds.set()
        MESSAGE_AGE_SECONDS.labels(self._name).observe(unix_ms() / 1e3 - delivery.stored_ns / 1e9)
        start_in(self._tasks, self._work(delivery, share))

    async def _on_status(self, message: Msg, status: str) -> None:
        stale = message.subject.rsplit(".", 1)[1] != str(self._epoch)
        if status == "100" or stale:
            return
        unused = (message.headers or {}).get("Nats-Pending-Messages")
        self._requested = max(0, self._requested - int(unused)) if unused else 0
        if status != "408":  # 408 is the normal end of a pull; after others (409, 503) a pause avoids a busy loop.
            await asyncio.sleep(_RETRY_S)
        await self._request()

    async def _work(self, delivery: Delivery, share: str) -> None:
        """Handle a message. `share`: the share of the slots that it uses; empty: none."""
        try:
            if await self._handler(delivery):
                await self._bus.send(self._held[delivery.sequence].reply, b"+ACK")
        except Exception:
            # The message is redelivered after the acknowledgement time; its reader counts starts.
            logger.exception("handling_failed", subject=delivery.subject, deliveries=delivery.number)
        finally:
            del self._held[delivery.sequence]
            if share:
                self._shares.give_back(share)
            await self._request_when_low()

    async def _request_when_low(self) -> None:
        """Request more once less than half of the free slots is requested, which limits the number of pull requests."""
        if self._requested <= (self._slots - self.busy) // 2:
            await self._request()

    async def _send_heartbeats(self) -> None:
        for group in itertools.cycle(range(_HEARTBEAT_GROUPS)):
            if not self._held:
                self._holds.clear()
            await self._holds.wait()
            await asyncio.sleep(self._bus.settings.ack_heartbeat_s / _HEARTBEAT_GROUPS)
            for delivery in [each for each in self._held.values() if each.sequence % _HEARTBEAT_GROUPS == group]:
                await self._bus.send(delivery.reply, b"+WPI")

    async def _check_pull(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_HEARTBEAT_S)
            if time.monotonic() - self._last_message_at > 2 * _IDLE_HEARTBEAT_S + 1 and self._bus.is_connected:
                await self._renew()
