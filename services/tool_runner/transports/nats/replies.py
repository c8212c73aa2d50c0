"""Replies over NATS: translate a message into the event of a call, and queue events until the call processes them."""

import asyncio
import math
from collections import deque

import orjson
import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools import messages as tools
from contracts.tools.messages import PARTS_HEADER, REPLY_HEADER, ToolFailure
from contracts.wire.limits import MAX_INLINE_BYTES
from services.shared.redaction.json_values import cut
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event

logger = structlog.get_logger(__name__)

_ERROR_HEADER = "Nats-Service-Error"
_MAX_REASON_CHARACTERS = 2000
_MAX_COUNT_DIGITS = 9
_UNPARSED: dict[str, type[events.Progress | events.Piece | events.Pause]] = {
    "progress": events.Progress,
    "artifact_chunk": events.Piece,
    "pause": events.Pause,
}
_UNKNOWN_COUNT = -1
"""Stands for a part count that cannot be parsed: it never equals the number of parts that arrived."""


class EventQueue:
    """The unprocessed events of one call, bounded in bytes: a tool that floods fails only its own call."""

    def __init__(self, max_bytes: int) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._has_events = asyncio.Event()

    def put(self, event: Event, size: int = 0) -> None:
        """Append an event that holds `size` bytes."""
        if self._bytes + size > self._max_bytes:
            self._events.clear()
            event, size, self._bytes = events.Flood(), 0, 0
        self._events.append((event, size))
        self._bytes += size
        self._has_events.set()

    async def next(self, wait_s: float) -> Event | None:
        """Return the next event, or None after `wait_s` seconds, which may be infinite."""
        if not self._events:
            self._has_events.clear()
            try:
                async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                    await self._has_events.wait()
            except TimeoutError:
                if not self._events:
                    return None
        event, size = self._events.popleft()
        self._bytes -= size
        return event


def event_of(message: Msg, request: int) -> Event:
    """Return the event that a reply to a request is."""
    headers, data = message.headers or {}, message.data
    if not data and headers.get("Status") == "503":
        return events.NoResponders(request)
    if _ERROR_HEADER in headers:  # an error of a NATS micro library
        return events.Failure(ToolFailure(reason=headers[_ERROR_HEADER][:_MAX_REASON_CHARACTERS]))
    match headers.get(REPLY_HEADER, "result"):
        case "result":
            return events.Result(request, data, _part_count(headers.get(PARTS_HEADER)))
        case "failure":
            return events.Failure(read_failure(data))
        case "part":
            return events.Part(request, data)
        case ("progress" | "artifact_chunk" | "pause") as kind:
            return _UNPARSED[kind](data)
        case "content":
            return _content(data)
        case "heartbeat":
            return _heartbeat(data)
        case "declined":
            return events.Declined(request, _is_busy(data))
        case kind:
            logger.debug("reply_of_unknown_kind", kind=kind[:40])
            return events.Heartbeat()  # A newer tool sent an unknown kind: it is alive at least.


def _part_count(header: str | None) -> int | None:
    if header is None:
        return None
    return int(header) if header.strip().isdecimal() and len(header) <= _MAX_COUNT_DIGITS else _UNKNOWN_COUNT


def _heartbeat(data: bytes) -> events.Heartbeat:
    try:
        heartbeat = tools.Heartbeat.model_validate_json(data or b"{}")
    except ValidationError:
        return events.Heartbeat()
    return events.Heartbeat(heartbeat.every_s, heartbeat.instance)


def _content(data: bytes) -> events.Content:
    text = data.decode(errors="replace")
    kept = cut(text, MAX_INLINE_BYTES)
    return events.Content(kept, is_cut=kept != text)


def _is_busy(data: bytes) -> bool:
    try:
        return tools.Declined.model_validate_json(data or b"{}").reason == "busy"
    except ValidationError:  # A reason of a newer tool: the number of such replies is limited.
        return False


def read_failure(data: bytes) -> ToolFailure:
    """Parse a failure in any form: the model's, JSON, or plain text."""
    try:
        failure = ToolFailure.model_validate_json(data)
    except ValidationError:
        failure = ToolFailure(reason=_text(data) or "the tool failed and did not say why")
    if len(failure.reason) <= _MAX_REASON_CHARACTERS:
        return failure
    return failure.model_copy(update={"reason": failure.reason[:_MAX_REASON_CHARACTERS] + "…"})


def _text(data: bytes) -> str:
    try:
        return str(orjson.loads(data))
    except ValueError:
        return data.decode(errors="replace")
