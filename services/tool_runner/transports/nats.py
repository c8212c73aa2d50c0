"""Call tools over NATS: requests and replies of many calls over one subscription.

Rule 1: each request has its own reply subject, so parts of two replies to the same call never mix.
Rule 2: unprocessed replies are bounded in bytes: a tool that floods fails only its own call.
Rule 3: replies after the outcome of a call are counted and ignored.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Literal, cast, get_args

import structlog
from nats.aio.msg import Msg

from contracts.tools import PARTS_HEADER, REPLY_HEADER, ReplyKind
from services.messaging.connection import Bus

logger = structlog.get_logger(__name__)

Kind = ReplyKind | Literal["no_responders", "service_error", "flood", "reconnected", "run_ended"]
"""What tools send; then events around a call: no responders, a micro library's error, too many bytes, a reconnect, the
run's end."""

_KINDS = frozenset(get_args(ReplyKind))
_ERROR_HEADER = "Nats-Service-Error"


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One event of a call. `key`: the request that it answers."""

    kind: Kind
    data: bytes = b""
    key: str = ""
    parts: str | None = None


class CallChannel:
    """The requests of one call and the events that answer them."""

    def __init__(self, transport: "NatsTransport", max_waiting_bytes: int) -> None:
        self._transport = transport
        self._events: deque[CallEvent] = deque()
        self._bytes = 0
        self._max_waiting_bytes = max_waiting_bytes
        self._has_events = asyncio.Event()
        self.keys: list[str] = []

    async def send(self, subject: str, body: bytes) -> str | None:
        """Send a request and return its key; None when it was certainly not sent, because NATS is not connected."""
        key = self._transport.new_key(self)
        self.keys.append(key)
        return key if await self._transport.send(subject, body, key) else None

    async def receive(self, wait_s: float) -> CallEvent | None:
        """Return the next event, or None after `wait_s` seconds of silence."""
        if not self._events:
            self._has_events.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_events.wait()
            except TimeoutError:
                if not self._events:
                    return None
        event = self._events.popleft()
        self._bytes -= len(event.data)
        return event

    def put(self, event: CallEvent) -> None:
        """Append an event."""
        if self._bytes + len(event.data) > self._max_waiting_bytes:
            self._events.clear()
            self._bytes = 0
            event = CallEvent("flood")
        self._events.append(event)
        self._bytes += len(event.data)
        self._has_events.set()

    def unread(self, event: CallEvent) -> None:
        """Put an event back to the front."""
        self._events.appendleft(event)
        self._bytes += len(event.data)
        self._has_events.set()

    def close(self) -> None:
        """Stop receiving events."""
        self._transport.forget(self)


class NatsTransport:
    """The subscription that all channels of this process share."""

    def __init__(self, bus: Bus, max_waiting_bytes: int) -> None:
        self._bus = bus
        self._max_waiting_bytes = max_waiting_bytes
        self._numbers = count(1)
        self._channels: dict[str, CallChannel] = {}
        self._inbox = ""
        self.late = 0
        """Replies that came after the outcome of their call."""

    async def start(self) -> "NatsTransport":
        """Subscribe."""
        self._inbox = self._bus.nc.new_inbox() + "."
        await self._bus.subscribe(self._inbox + "*", self._on_message)
        self._bus.on_reconnect.append(self._on_reconnect)
        return self

    def open(self) -> CallChannel:
        """Open the channel of one call. The caller closes it."""
        return CallChannel(self, self._max_waiting_bytes)

    def new_key(self, channel: CallChannel) -> str:
        """Return a new key for a request of the channel."""
        key = str(next(self._numbers))
        self._channels[key] = channel
        return key

    def forget(self, channel: CallChannel) -> None:
        """Close a channel."""
        for key in channel.keys:
            self._channels.pop(key, None)

    async def send(self, subject: str, body: bytes, key: str) -> bool:
        """Send one request; False when it was certainly not sent."""
        return await self._bus.tell(subject, body, reply=self._inbox + key)

    async def _on_message(self, message: Msg) -> None:
        key = message.subject[len(self._inbox) :]
        channel = self._channels.get(key)
        event = _event_of(message, key)
        if channel is not None:
            channel.put(event)
        elif event.kind != "no_responders":
            self.late += 1
            logger.debug("late_reply_ignored", kind=event.kind, size=len(event.data))

    async def _on_reconnect(self) -> None:
        for channel in {id(one): one for one in self._channels.values()}.values():
            channel.put(CallEvent("reconnected"))


def _event_of(message: Msg, key: str) -> CallEvent:
    headers = message.headers
    if not headers:
        return CallEvent("result", message.data, key)
    if not message.data and headers.get("Status") == "503":
        return CallEvent("no_responders", b"", key)
    if _ERROR_HEADER in headers:
        return CallEvent("service_error", headers[_ERROR_HEADER].encode(), key)
    kind = headers.get(REPLY_HEADER, "result")
    if kind not in _KINDS:
        logger.debug("reply_of_unknown_kind", kind=kind[:40])
        return CallEvent("heartbeat", b"{}", key)  # A newer tool sent an unknown kind: it is alive at least.
    return CallEvent(cast("Kind", kind), message.data, key, headers.get(PARTS_HEADER))
