"""Tools over NATS: `tool.<name>` and its relatives; each request has a reply subject, `answer.<tool>.<instance>.<key>`.

Rule 1: a reply subject contains the name of the tool, and only this tool may publish there. A reply on another subject
belongs to no request and is ignored, so no tool replies in place of another.
Rule 2: each tool has its own subscription. A tool that floods is cut off by the server, and the others are not slowed.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import orjson
import structlog
from nats.aio.msg import Msg

from contracts.artifacts import GIVEN_HEADER, BytesGiven
from contracts.tools import messages as tools
from contracts.wire import names, subjects
from contracts.wire.base import MAX_INLINE_BYTES, parsed
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.nats_connection import Subscription
from services.messaging.nats_patches import FORGED
from services.runtime.tasks import start_in
from services.shared.artifacts.requests import header_value
from services.shared.redaction.json_values import cut
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event
from services.tool_runner.transports.base import EventQueue

logger = structlog.get_logger(__name__)

_ERROR_HEADER = "Nats-Service-Error"
_MAX_REASON_CHARACTERS = 2000
_MAX_COUNT_DIGITS = 9
_UNPARSED: dict[str, type[events.Progress | events.Piece | events.Pause | events.BytesWanted]] = {
    "progress": events.Progress,
    "artifact_chunk": events.Piece,
    "pause": events.Pause,
    "wanted": events.BytesWanted,
}
_UNKNOWN_COUNT = -1
"""Stands for a part count that cannot be parsed: it never equals the number of parts that arrived."""


def event_of(message: Msg, request: int) -> Event:
    """Return the event that a reply to a request is."""
    headers, data = message.headers or {}, message.data
    if not data and headers.get("Status") == "503":
        return events.NoResponders(request)
    if _ERROR_HEADER in headers:  # an error of a NATS micro library
        return events.Failure(tools.ToolFailure(reason=headers[_ERROR_HEADER][:_MAX_REASON_CHARACTERS]))
    match headers.get(tools.REPLY_HEADER, "result"):
        case "result":
            return events.Result(request, data, _part_count(headers.get(tools.PARTS_HEADER)))
        case "failure":
            return events.Failure(read_failure(data))
        case "part":
            return events.Part(request, data)
        case ("progress" | "artifact_chunk" | "pause" | "wanted") as kind:
            return _UNPARSED[kind](data)
        case "content":
            text = data.decode(errors="replace")
            kept = cut(text, MAX_INLINE_BYTES)
            return events.Content(kept, is_cut=kept != text)
        case "heartbeat":
            heartbeat = parsed(tools.Heartbeat, data or b"{}") or tools.Heartbeat()
            return events.Heartbeat(heartbeat.every_s, heartbeat.instance)
        case "declined":  # For a reason of a newer tool: the number of such replies is limited.
            declined = parsed(tools.Declined, data or b"{}")
            return events.Declined(request, declined is not None and declined.reason == "busy")
        case kind:
            logger.debug("reply_of_unknown_kind", kind=kind[:40])
            return events.Heartbeat()  # A newer tool sent an unknown kind: it is alive at least.


def _part_count(header: str | None) -> int | None:
    if header is None:
        return None
    return int(header) if header.strip().isdecimal() and len(header) <= _MAX_COUNT_DIGITS else _UNKNOWN_COUNT


def read_failure(data: bytes) -> tools.ToolFailure:
    """Parse a failure in any form: the model's, JSON, or plain text."""
    if (failure := parsed(tools.ToolFailure, data)) is None:
        try:
            text = str(orjson.loads(data))
        except ValueError:
            text = data.decode(errors="replace")
        failure = tools.ToolFailure(reason=text or "the tool failed and did not say why")
    if len(failure.reason) <= _MAX_REASON_CHARACTERS:
        return failure
    return failure.model_copy(update={"reason": failure.reason[:_MAX_REASON_CHARACTERS] + "…"})


_MAX_REPLIES_PER_S, _MAX_BYTES_PER_S = 2_000, 256 << 20
"""Of one tool; with more it counts as flooding. Half a core reads that many replies, and handles a tenth of them."""
_MAX_UNUSED_BYTES_PER_S = 16 << 20
"""Of them, in replies that no call uses: large ones could close the connection before the other limit is reached."""
_MAX_OTHER_BYTES = 2 << 20
"""Of a reply that is no result in one message."""
_FIRST_CUT_OFF_S, _MAX_CUT_OFF_S = 1.0, 30.0
_FORGIVEN_S = 60.0
"""Seconds without a flood after which the first cut-off is short again."""
_PING_SHARED_S = 0.2
"""Calls that ask for an instance within this time share one ping, so that their number does not matter."""
_MAX_PINGED = 1000
_Askers = list[tuple[EventQueue, int]]
"""Queue of a call, and number of the request in it."""


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
        self._instance = names.new_id()
        self._keys = count(1)
        self._tools: dict[str, _Tool] = {}
        self._requests: dict[str, tuple[EventQueue, int, _Askers | None]] = {}
        """Reply subject -> the queue of its call, the number of the request in the call, and of a ping who shares it.
        """
        self._pings: dict[str, tuple[float, _Askers]] = {}
        """Subject of an instance -> when it was pinged, by the monotonic clock, and for whom."""
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
        self, tool: str, subject: str, data: bytes, queue: EventQueue, request: int, askers: "_Askers | None" = None
    ) -> bool:
        """Send a request of a call. False when it was certainly not sent."""
        source = self._tools.get(tool)
        if source is None:
            source = self._tools[tool] = _Tool(tool, subjects.answer.pattern(instance=self._instance, tool=tool)[:-1])
        if not source.is_subscribed and not await self._subscribe(source):
            return False
        reply = f"{source.prefix}{next(self._keys)}"
        self._requests[reply] = (queue, request, askers)
        self._open[queue].append(reply)
        return await self._bus.send(subject, data, reply=reply)

    async def ping(self, tool: str, subject: str, queue: EventQueue, request: int) -> None:
        """Ask whether an instance is connected, for all calls that ask at about the same time: its reply is ignored."""
        now = time.monotonic()
        pinged_at, askers = self._pings.get(subject, (0.0, []))
        if now - pinged_at < _PING_SHARED_S:
            askers.append((queue, request))
            return
        if len(self._pings) >= _MAX_PINGED:
            self._pings.clear()
        self._pings[subject] = now, [(queue, request)]
        await self.send(tool, subject, b"", queue, request, self._pings[subject][1])

    def on_reconnect(self) -> None:
        """Report a new connection to every call."""
        for queue in self._open:
            queue.put(events.Reconnected())

    async def _subscribe(self, source: _Tool) -> bool:
        if time.monotonic() < source.cut_off_until:
            return False
        source.is_subscribed = True
        try:
            source.subscription = await self._bus.receive(f"{source.prefix}*", lambda reply: self._take(source, reply))
        except BusError:
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
            or (size > _MAX_OTHER_BYTES and headers.get(tools.REPLY_HEADER, "result") != "result")
            or FORGED in headers
        ):
            self._cut_off(source)
        elif found is not None:
            queue, request, askers = found
            event = event_of(message, request)
            if askers is None:
                queue.put(event, len(message.data))
            elif isinstance(event, events.NoResponders):
                for each, number in askers:
                    each.put(events.NoResponders(number))
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
            start_in(self._tasks, source.subscription.stop())


class NatsTransport:
    """Reaches every tool that announces itself as a NATS micro service, or that the tools file declares."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._answers = Answers(bus)
        bus.on_reconnect.append(self._answers.on_reconnect)

    @property
    def connected_since(self) -> float | None:
        """Since when the bus has been connected, by the monotonic clock; None: it is not."""
        return self._bus.up_since if self._bus.is_connected else None

    def serves(self, _spec: tools.ToolSpec) -> bool:
        """Whether this transport reaches the tool: any that no other transport serves."""
        return True

    @contextmanager
    def connect(self, spec: tools.ToolSpec, queue: EventQueue) -> Iterator["NatsConnection"]:
        """Put the replies to one call into its queue until the context ends."""
        with self._answers.to(queue):
            yield NatsConnection(self._bus, self._answers, spec.name, queue)

    async def reject(self, tool: str, rejected: tools.ResultRejected) -> None:
        """Report to the tool's instances why a result or pause is not accepted."""
        await self._bus.send(subjects.tool_rejected(tool), rejected.model_dump_json().encode())


class NatsConnection:
    """One call's way to the instances of its tool."""

    def __init__(self, bus: Bus, answers: Answers, tool: str, queue: EventQueue) -> None:
        self._bus, self._answers, self._tool, self._queue = bus, answers, tool, queue

    async def send(self, request: int, call: tools.ToolCall) -> bool:
        """Send the call to one instance. False when it was certainly not sent."""
        body = call.model_dump_json().encode()
        return await self._answers.send(self._tool, subjects.tool(self._tool), body, self._queue, request)

    async def ask_status(self, request: int, question: tools.CallQuestion) -> None:
        """Ask all instances whether one works on the call."""
        body = question.model_dump_json().encode()
        await self._answers.send(self._tool, subjects.tool_status(self._tool), body, self._queue, request)

    async def ping(self, request: int, instance: str) -> None:
        """Ask whether an instance is connected to NATS."""
        subject = subjects.discover_ping(self._tool, instance)
        await self._answers.ping(self._tool, subject, self._queue, request)

    async def give(self, given: BytesGiven, data: bytes) -> None:
        """Send bytes to all instances."""
        await self._bus.send(subjects.tool_given(self._tool), data, {GIVEN_HEADER: header_value(given)})

    async def cancel(self, question: tools.CallQuestion) -> None:
        """Tell all instances that the call is cancelled."""
        await self._bus.send(subjects.tool_cancel(self._tool), question.model_dump_json().encode())
