"""Stream a run to one client: its stored records, then live ones.

A stream ends with its run, when the client disconnects, and when the gateway stops.

Rule 1: the path of a record is short: bytes from NATS, split into events, written as frames. No model is built, and
the records that have arrived together are written together.
Rule 2: a client that disconnects is noticed at once, not at the next event, and nothing of its stream is left behind.
Rule 3: silence is filled with comments, also while NATS is unavailable, so that a client can tell a slow run from a
dead connection.
Rule 4: streams are counted (`open_streams`), and a client that does not read is disconnected (`http_connection`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing

import structlog
from fastapi import Response

from services.messaging.errors import BusError
from services.runtime.http_server import Receive, Scope, Send
from services.shared.run_follower import RunFollower, StoredRecord

from .errors import Problem
from .frames import KEEP_ALIVE, RETRY, frames
from .open_streams import OpenStreams, until_disconnected

logger = structlog.get_logger(__name__)

RUN_HEADER = "Runwire-Run"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Finish = Callable[[bytes, ExitStack], Awaitable[bytes]]
"""Rewrites the terminal record before it is sent. The stack is closed when the client has received it, or is gone."""


class EventStream(Response):
    """The response that streams one run."""

    media_type = "text/event-stream"

    def __init__(
        self,
        follower: RunFollower,
        open_streams: OpenStreams,
        heartbeat_s: float,
        tenant: str,
        run: str,
        finish: Finish | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._follower = follower
        self._tenant = tenant
        self._finish = finish
        self._run = run
        self._open = open_streams
        self._heartbeat_s = heartbeat_s
        self._sent_at = 0.0
        self.init_headers({**_HEADERS, RUN_HEADER: run})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or a problem when too many streams are open."""
        try:
            with self._open.counted(self._tenant, run_id=self._run), ExitStack() as resources:
                await self._stream(receive, send, resources)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        finally:
            await self._follower.stop()

    async def _stream(self, receive: Receive, send: Send, resources: ExitStack) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._send(send, RETRY)
        pump = asyncio.create_task(self._pump(send, resources))
        self._open.add(pump)
        disconnected = asyncio.create_task(until_disconnected(receive))
        try:
            while not await self._has_ended(pump, disconnected):
                await self._send(send, KEEP_ALIVE)
            is_client_gone = disconnected.done()
        finally:
            pump.cancel()
            disconnected.cancel()
            await asyncio.gather(pump, disconnected, return_exceptions=True)
        if not is_client_gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._sent_at = asyncio.get_running_loop().time()

    async def _has_ended(self, pump: asyncio.Task[None], disconnected: asyncio.Task[None]) -> bool:
        """Return True when the stream has ended, False after `heartbeat_s` without a frame."""
        clock = asyncio.get_running_loop().time
        while (quiet_s := clock() - self._sent_at) < self._heartbeat_s:
            done, _ = await asyncio.wait(
                {pump, disconnected}, timeout=self._heartbeat_s - quiet_s, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return True
        return False

    async def _shown(self, record: StoredRecord, resources: ExitStack) -> bytes:
        return await self._finish(record.data, resources) if record.terminal and self._finish else record.data

    async def _pump(self, send: Send, resources: ExitStack) -> None:
        try:
            async with aclosing(self._follower.records()) as batches:
                async for records in batches:
                    parts = [
                        frames(await self._shown(record, resources), record.log, record.stream) for record in records
                    ]
                    if body := b"".join(parts):
                        await self._send(send, body)
        except (BusError, OSError) as error:
            # The client comes back with the last id that it received.
            logger.warning("stream_broken_off", error=repr(error))
        except Exception:
            logger.exception("stream_failed")
