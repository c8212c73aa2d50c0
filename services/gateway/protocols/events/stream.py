"""Stream a run or a session to one client: its stored records, then live ones.

A stream ends with its run, when the client disconnects, when its key is gone or its ticket ends, and when the
gateway stops.

Rule 1: the path of a record is short: bytes from NATS, split into events, written as frames. No model is built, and
the records that have arrived together are written together.
Rule 2: a client that disconnects is noticed at once, not at the next event, and nothing of its stream is left behind.
Rule 3: silence is filled with comments, also while NATS is unavailable, so that a client can tell a slow run from a
dead connection.
Rule 4: a client whose run has not begun receives a comment that says so.
Rule 5: streams are counted (`edge/open_streams`), and a client that does not read is disconnected
(`edge/http_connection`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import replace
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
from services.runtime.http_server import Receive, Scope, Send
from services.shared.runs.run_follower import Follower

from .encoder import KEEP_ALIVE, KEY_GONE, RETRY, TICKET_EXPIRED, WAITING, frames, session_frames

logger = structlog.get_logger(__name__)


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
        """Return what fills `heartbeat_s` without a frame; None at the end of the stream.

        Of a run that waits for a planner it says so, once and sooner.
        """
        clock = asyncio.get_running_loop().time
        while (left_s := self._sent_at + self._silence_s - clock()) > 0:
            await asyncio.wait({pump, disconnected}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if pump.done() or disconnected.done():
                return None
        waits, self._may_wait = self._may_wait, False
        return WAITING if waits else KEEP_ALIVE

    @property
    def _silence_s(self) -> float:
        """Seconds without a frame after which a comment is due."""
        return min(_WAITING_AFTER_S, self._heartbeat_s) if self._may_wait else self._heartbeat_s

    async def _pump(self, send: Send, resources: ExitStack) -> None:
        try:
            async with aclosing(self._follower.records()) as batches:
                async for records in batches:
                    self._may_wait = False
                    if records[-1].terminal and self._finish:
                        last = records[-1]
                        records[-1] = replace(last, data=await self._finish(last.data, resources))
                    shown = (
                        frames(each.data, each.log, each.stream) if self._run else session_frames(each.data, each.log)
                        for each in records
                    )
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
