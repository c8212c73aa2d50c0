"""The reply subjects of calls: each request to a tool has one of its own, `answer.<tool>.<instance>.<key>`.

Rule 1: a reply subject contains the name of the tool, and only this tool may publish there. A reply on another subject
belongs to no request and is ignored, so no tool replies in place of another.
Rule 2: each tool has its own subscription. A tool that floods is cut off by the server, and the others are not slowed.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts.tools.messages import REPLY_HEADER
from contracts.wire import ids, subjects
from services.messaging.connection import Bus
from services.messaging.errors import NATS_ERRORS
from services.messaging.nats_patches import inboxes
from services.messaging.nats_patches.headers import FORGED
from services.tool_runner.calls import events
from services.tool_runner.transports.base import EventQueue
from services.tool_runner.transports.nats.replies import event_of

logger = structlog.get_logger(__name__)

_MAX_REPLIES_PER_S, _MAX_BYTES_PER_S = 2_000, 256 << 20
"""Of one tool; with more it counts as flooding. Half a core reads that many replies, and handles a tenth of them."""
_MAX_UNUSED_BYTES_PER_S = 16 << 20
"""Of them, in replies that no call uses: large ones could close the connection before the other limit is reached."""
_MAX_OTHER_BYTES = 2 << 20
"""Of a reply that is no result in one message."""
_FIRST_CUT_OFF_S, _MAX_CUT_OFF_S = 1.0, 30.0
_FORGIVEN_S = 60.0
"""Seconds without a flood after which the first cut-off is short again."""


@dataclass(slots=True)
class _Tool:
    """What is received from one tool. `prefix`: the beginning of its reply subjects."""

    name: str
    prefix: str
    is_subscribed: bool = False
    """Whether there is a subscription, or there will be with the next bytes that are sent."""
    subscription: Subscription | None = None
    second: int = 0
    replies: int = 0
    bytes: int = 0
    unused_bytes: int = 0
    """Received in this second of the monotonic clock."""
    cut_off_until: float = 0.0
    cut_off_s: float = 0.0
    """Seconds for which the tool was cut off the last time."""


class Answers:
    """Routes replies to the queues of calls, over one connection."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._instance = ids.new_id()
        self._keys = count(1)
        self._tools: dict[str, _Tool] = {}
        self._requests: dict[str, tuple[EventQueue, int, bool]] = {}
        """Reply subject -> the queue of its call, the number of the request in the call, and whether it is a ping."""
        self._open: dict[EventQueue, list[str]] = {}
        """Queue of each call in progress -> the reply subjects of its requests."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def to(self, queue: EventQueue) -> Iterator[None]:
        """Put replies into the queue of a call until the context ends; later ones are ignored."""
        self._open[queue] = []
        try:
            yield
        finally:
            for reply in self._open.pop(queue):
                del self._requests[reply]

    async def send(
        self, tool: str, subject: str, data: bytes, queue: EventQueue, request: int, *, is_ping: bool = False
    ) -> bool:
        """Send a request of a call. False when it was certainly not sent. The reply to a ping is ignored."""
        source = self._tools.get(tool)
        if source is None:
            source = self._tools[tool] = _Tool(tool, subjects.answer.pattern(instance=self._instance, tool=tool)[:-1])
        if not source.is_subscribed and not await self._subscribe(source):
            return False
        reply = f"{source.prefix}{next(self._keys)}"
        self._requests[reply] = (queue, request, is_ping)
        self._open[queue].append(reply)
        return await self._bus.send(subject, data, reply=reply)

    async def on_reconnect(self) -> None:
        """Report a new connection to every call."""
        for queue in self._open:
            queue.put(events.Reconnected())

    async def _subscribe(self, source: _Tool) -> bool:
        if time.monotonic() < source.cut_off_until:
            return False
        source.is_subscribed = True
        try:
            source.subscription = await inboxes.subscribe(
                self._bus.nc, f"{source.prefix}*", lambda reply: self._take(source, reply)
            )
        except NATS_ERRORS:
            source.is_subscribed = False
        return source.is_subscribed

    def _take(self, source: _Tool, message: Msg) -> None:
        second = int(time.monotonic())
        if second != source.second:
            source.second, source.replies, source.bytes, source.unused_bytes = second, 0, 0, 0
        if not source.is_subscribed:
            return
        headers = message.headers or {}
        found, size = self._requests.get(message.subject), len(message.data) + sum(map(len, headers.values()))
        source.replies += 1
        source.bytes += size
        source.unused_bytes += 0 if found else size
        if (
            source.replies > _MAX_REPLIES_PER_S
            or source.bytes > _MAX_BYTES_PER_S
            or source.unused_bytes > _MAX_UNUSED_BYTES_PER_S
            or (size > _MAX_OTHER_BYTES and headers.get(REPLY_HEADER, "result") != "result")
            or FORGED in headers
        ):
            self._cut_off(source)
        elif found is not None:
            queue, request, is_ping = found
            event = event_of(message, request)
            if not is_ping or isinstance(event, events.NoResponders):
                queue.put(event, len(message.data))
        elif message.data:
            logger.debug("late_reply_ignored", tool=source.name, size=len(message.data))

    def _cut_off(self, source: _Tool) -> None:
        """Have the server deliver nothing of a tool that floods, and fail its calls in progress."""
        now = time.monotonic()
        is_forgiven = now > source.cut_off_until + _FORGIVEN_S
        source.cut_off_s = _FIRST_CUT_OFF_S if is_forgiven else min(source.cut_off_s * 2, _MAX_CUT_OFF_S)
        source.is_subscribed, source.cut_off_until = False, now + source.cut_off_s
        logger.warning(
            "tool_flooded", tool=source.name, replies=source.replies, bytes=source.bytes, cut_off_s=source.cut_off_s
        )
        for queue in {queue for reply, (queue, _, _) in self._requests.items() if reply.startswith(source.prefix)}:
            queue.put(events.Flood())
        if source.subscription is not None:
            task = asyncio.create_task(_unsubscribe(source.subscription))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _unsubscribe(subscription: Subscription) -> None:
    with suppress(*NATS_ERRORS):
        await subscription.unsubscribe()
