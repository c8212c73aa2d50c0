"""Replies over NATS: translate a message into the event of a call."""

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
            text = data.decode(errors="replace")
            kept = cut(text, MAX_INLINE_BYTES)
            return events.Content(kept, is_cut=kept != text)
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
        try:
            text = str(orjson.loads(data))
        except ValueError:
            text = data.decode(errors="replace")
        failure = ToolFailure(reason=text or "the tool failed and did not say why")
    if len(failure.reason) <= _MAX_REASON_CHARACTERS:
        return failure
    return failure.model_copy(update={"reason": failure.reason[:_MAX_REASON_CHARACTERS] + "…"})
