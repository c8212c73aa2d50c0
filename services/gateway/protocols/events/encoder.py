"""The frames of the event streams of runs and sessions (Server-Sent Events). Pure.

Rule 1: one frame per event: `event` is its type, `data` the event as JSON.
Rule 2: the id stands on the last event of a record only, so that a client which resumes gets all events of a record or
none. It is `<log sequence>-<stream sequence>`, because each of the run's two subjects has its own cursor.
Rule 3: a caller's `tool_context` is for tools, the `opaque` fields of a step are for its model, and what a model said
(`said`) is for the next prompt: none of them is ever sent to a listener.

A session has one subject: its ids are sequences of its log. Checkpoints are for planners, and are left out.
"""

import re
from dataclasses import dataclass
from typing import Any

import structlog

from services.runtime import exact_json

logger = structlog.get_logger(__name__)

WAITING = b": waiting\n\n"
"""The comment for a run that no planner has opened."""
KEEP_ALIVE = b": keep-alive\n\n"
KEY_GONE = b": key_gone\n\n"
"""The last comment of a stream whose API key was removed or changed."""
TICKET_EXPIRED = b'event: ticket_expired\ndata: {"type":"ticket_expired"}\n\n'
"""The last event of a stream whose ticket has ended. It has no id: it belongs to the stream, not to the run."""
RETRY = b"retry: 1000\n\n"
"""Milliseconds after which a browser reconnects."""

CURSOR = r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})"
"""Pattern of an event's id."""
SESSION_CURSOR = r"(0|[1-9][0-9]{0,18})"
"""The same for a session."""
_CURSOR = re.compile(CURSOR, re.ASCII)
_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The newest sequences of a run's log and stream that a listener has received."""

    log: int = 0
    stream: int = 0

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Raises ValueError for anything but an id that `frames` made."""
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no cursor")
        return cls(int(match[1]), int(match[2]))


def frames(record: bytes, log: int, stream: int) -> bytes:
    """Return the frames of a run's record; empty for an invalid record, which is logged and skipped."""
    return _frames(record, b"%d-%d" % (log, stream))


def session_frames(record: bytes, sequence: int) -> bytes:
    """Return the same of a session's record."""
    return _frames(record, b"%d" % sequence)


def _frames(record: bytes, cursor: bytes) -> bytes:
    try:
        events = [event for event in exact_json.loads(record)["events"] if event["type"] != "checkpoint"]
        parts = [_frame(event) for event in events]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("record_skipped", cursor=cursor.decode(), error=repr(error)[:200])
        return b""
    if not parts:
        return b""
    parts[-1] += b"id: %b\n" % cursor
    return b"\n".join(parts) + b"\n"


def _frame(event: dict[str, Any]) -> bytes:
    kind = event["type"]
    if not _TYPE.fullmatch(kind):
        raise ValueError("the event's type is no name")
    if kind in {"run_started", "queued"}:
        event["request"].pop("tool_context", None)
    event.pop("opaque", None)
    event.pop("said", None)
    event.pop("report_as", None)  # For planners: what a report will be requested with.
    return b"event: %b\ndata: %b\n" % (kind.encode(), exact_json.dumps(event))
