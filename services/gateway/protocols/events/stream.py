"""Stream a run or a session to one client, as Server-Sent Events: its stored records, then live ones.

A stream ends with its run, when the client disconnects, when its key is gone or its ticket ends, and when the
gateway stops.

Rule 1: one frame per event: `event` is its type, `data` the event as JSON. The id stands on the last event of a record
only, so that a client which resumes gets all events of a record or none. It is `<log sequence>-<stream sequence>`,
because each of the run's two subjects has its own cursor; a session has one subject, its log.
Rule 2: a caller's `tool_context` is for tools, the `opaque` fields of a step are for its model, and what a model said
(`said`) is for the next prompt: none of them is ever sent to a listener. Checkpoints are for planners, and left out.
Rule 3: the path of a record is short: bytes from NATS, split into events, written as frames. No model is built, and
the records that have arrived together are written together.
Rule 4: a client that disconnects is noticed at once, not at the next event, and nothing of its stream is left behind.
Rule 5: silence is filled with comments, also while NATS is unavailable, so that a client can tell a slow run from a
dead connection.
Rule 6: a client whose run has not begun receives a comment that says so.
Rule 7: streams are counted (`edge/open_streams`), and a client that does not read is disconnected
(`edge/http_connection`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from fastapi import Response

from contracts.wire.names import unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge.open_streams import until_disconnected
from services.gateway.edge.routing import RUN_HEADER, Form
from services.gateway.errors import Problem
from services.gateway.parts import Parts
from services.messaging.errors import BusError
from services.runtime import exact_json
from services.runtime.http_server import Receive, Scope, Send
from services.shared.runs.run_follower import Follower

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


def frames(record: bytes, log: int, stream: int | None = None) -> bytes:
    """Return the frames of a record; empty for an invalid one, which is logged and skipped.

    `log`: the sequence of the record, or the log's in a run, which has one of its `stream` too.
    """
    event_id = str(log) if stream is None else f"{log}-{stream}"
    try:
        events = [event for event in exact_json.loads(record)["events"] if event["type"] != "checkpoint"]
        parts = [_frame(event) for event in events]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("record_skipped", cursor=event_id, error=repr(error)[:200])
        return b""
    if not parts:
        return b""
    parts[-1] += f"id: {event_id}\n".encode()
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


def described(description: str, event: str) -> dict[str, Any]:
    """Return what OpenAPI says of a stream. `event`: the schema of each event's `data`, whose `type` is its `event`."""
    content = {"contentMediaType": "application/json", "contentSchema": {"$ref": f"#/components/schemas/{event}"}}
    fields = {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string", **content}}
    item = {"type": "object", "properties": fields, "required": ["data"]}
    return {"description": description, "content": {"text/event-stream": {"itemSchema": item}}}


EVENT_STREAM = described("The run's events, as docs/http.md says.", "RunEvent")
_WAITING_AFTER_S = 1.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Finish = Callable[[bytes, ExitStack], Awaitable[bytes]]
"""Rewrites the terminal record before it is sent. The stack is closed when the client has received it, or is gone."""


class EventStream(Response):
    """The response that streams one run; without `run`, one session."""

    media_type = "text/event-stream"

    def __init__(
        self,
        parts: Parts,
        follower: Follower,
        caller: Caller,
        run: str | None = None,
        finish: Finish | None = None,
        *,
        may_wait: bool = False,
    ) -> None:
        """`may_wait`: whether no planner may have opened the run yet."""
        self.status_code = 200
        self.background = None
        self._follower = follower
        self._caller = caller
        self._finish = finish
        self._run = run
        self._may_wait = may_wait
        self._open = parts.streams
        self._heartbeat_s = parts.settings.heartbeat_s
        self._sent_at = 0.0
        self.init_headers({**_HEADERS, RUN_HEADER: run} if run else _HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or a problem when too many streams are open."""
        try:
            with (
                self._open.counted(self._caller.tenant, **({"run_id": self._run} if self._run else {})),
                ExitStack() as resources,
            ):
                await self._stream(receive, send, resources)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        finally:
            await self._follower.stop()

    async def _stream(self, receive: Receive, send: Send, resources: ExitStack) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._send(send, RETRY)
        pump = asyncio.create_task(self._pump(send, resources))
        self._open.add(pump, self._caller)
        disconnected = asyncio.create_task(until_disconnected(receive))
        if (ends_at := self._caller.ends_at) is not None:
            timer = asyncio.get_running_loop().call_later((ends_at - unix_ms()) / 1000, pump.cancel)
            resources.callback(timer.cancel)
        try:
            while comment := await self._comment(pump, disconnected):
                await self._send(send, comment)
            is_client_gone = disconnected.done()
        finally:
            pump.cancel()
            disconnected.cancel()
            await asyncio.gather(pump, disconnected, return_exceptions=True)
        if not is_client_gone:
            if self._open.is_gone(self._caller):
                await self._send(send, KEY_GONE)
            elif ends_at is not None and unix_ms() >= ends_at:
                await self._send(send, TICKET_EXPIRED)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._sent_at = asyncio.get_running_loop().time()

    async def _comment(self, pump: asyncio.Task[None], disconnected: asyncio.Task[None]) -> bytes | None:
        """Return what fills the silence, for a run that waits for a planner one comment early; None at the end."""
        clock = asyncio.get_running_loop().time
        while True:
            silence_s = min(_WAITING_AFTER_S, self._heartbeat_s) if self._may_wait else self._heartbeat_s
            if (left_s := self._sent_at + silence_s - clock()) <= 0:
                break
            await asyncio.wait({pump, disconnected}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if pump.done() or disconnected.done():
                return None
        waits, self._may_wait = self._may_wait, False
        return WAITING if waits else KEEP_ALIVE

    async def _pump(self, send: Send, resources: ExitStack) -> None:
        try:
            async with aclosing(self._follower.records()) as batches:
                async for records in batches:
                    self._may_wait = False
                    if records[-1].terminal and self._finish:
                        last = records[-1]
                        records[-1] = replace(last, data=await self._finish(last.data, resources))
                    shown = (frames(each.data, each.log, each.stream if self._run else None) for each in records)
                    if body := b"".join(shown):
                        await self._send(send, body)
        except (BusError, OSError) as error:
            # The client comes back with the last id that it received.
            logger.warning("stream_broken_off", error=repr(error))
        except Exception:
            logger.exception("stream_failed")


def stream_of_run(
    parts: Parts, caller: Caller, run: str, follower: Follower, artifacts: Form, *, may_wait: bool
) -> EventStream:
    """Return the stream of what a follower of a run gives.

    `artifacts`: their form in the last event. `may_wait`: see `EventStream`.
    """
    finish = partial(parts.inliner.record, caller.tenant) if artifacts == "values" else None
    return EventStream(parts, follower, caller, run, finish, may_wait=may_wait)
