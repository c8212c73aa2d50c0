"""Stream a run to one client: what is stored, then live, until the run ends, the client leaves or the gateway stops.

Rule 1: the path of a record is short: bytes from NATS, split into events, frames to the socket; no model is built.
Rule 2: a client that leaves is noticed at once, not at the next event; nothing of it stays behind.
Rule 3: silence is filled with comments, also while NATS is unavailable; so a client can tell a slow run from a dead
connection.
Rule 4: connections that wait for runs are limited, of one tenant and in all. One that takes nothing is cut off
(`connections`).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

import structlog
from fastapi import Response

from services.messaging.errors import BusError
from services.runtime.health import Receive, Scope, Send
from services.shared.run_follower import RunFollower

from .errors import Problem, TooManyStreams, TryAgain
from .frames import KEEP_ALIVE, RETRY, frames

logger = structlog.get_logger(__name__)

RUN_HEADER = "Runwire-Run"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class OpenStreams:
    """What has to end before the gateway can stop, and how many connections wait for runs."""

    def __init__(self, limit: int, limit_of_a_tenant: int) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._limit = limit
        self._limit_of_a_tenant = limit_of_a_tenant
        self._places: Counter[str] = Counter()
        self.closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def check(self, tenant: str, **more: Any) -> None:
        """Return if one more connection may wait.

        Raises TooManyStreams and TryAgain; `more` is said beside the problem.
        """
        if self._places[tenant] >= self._limit_of_a_tenant:
            raise TooManyStreams(self._limit_of_a_tenant, **more)
        if self._places.total() >= self._limit:
            raise TryAgain("As many connections wait for runs as this gateway holds.", after_s=5, **more)

    @contextmanager
    def place(self, tenant: str, **more: Any) -> Iterator[None]:
        """Count a connection for as long as it waits. Raises what `check` does."""
        self.check(tenant, **more)
        self._places[tenant] += 1
        try:
            yield
        finally:
            self._places[tenant] -= 1
            if not self._places[tenant]:
                del self._places[tenant]

    def enter(self, task: asyncio.Task[Any]) -> None:
        """Cancel this task when the gateway stops; forget it when it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.closing:
            task.cancel()

    def close(self) -> None:
        """End every stream in good order: the clients come back to another copy, or to this one's successor."""
        self.closing = True
        for task in self._tasks:
            task.cancel()


Finish = Callable[[bytes, ExitStack], Awaitable[bytes]]
"""What is done with the record that ends a run before it is shown; the stack ends when the client has it, or is
gone."""


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
        self._about = {"run_id": run}
        self._open = open_streams
        self._heartbeat_s = heartbeat_s
        self._sent_at = 0.0
        self.init_headers({**_HEADERS, RUN_HEADER: run})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is a reason to stop; a problem when there are too many streams already."""
        try:
            with self._open.place(self._tenant, **self._about), ExitStack() as held:
                await self._stream(receive, send, held)
        except Problem as problem:
            await problem.response()(scope, receive, send)

    async def _stream(self, receive: Receive, send: Send, held: ExitStack) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._send(send, RETRY)
        pump = asyncio.create_task(self._pump(send, held))
        self._open.enter(pump)
        gone = asyncio.create_task(_disconnected(receive))
        try:
            while not await self._over(pump, gone):
                await self._send(send, KEEP_ALIVE)
            left = gone.done()
        finally:
            pump.cancel()
            gone.cancel()
            await asyncio.gather(pump, gone, return_exceptions=True)
        if not left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._sent_at = asyncio.get_running_loop().time()

    async def _over(self, pump: asyncio.Task[None], gone: asyncio.Task[None]) -> bool:
        """Return True when the stream is over, False after a silence."""
        clock = asyncio.get_running_loop().time
        while (quiet_s := clock() - self._sent_at) < self._heartbeat_s:
            done, _ = await asyncio.wait(
                {pump, gone}, timeout=self._heartbeat_s - quiet_s, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return True
        return False

    async def _pump(self, send: Send, held: ExitStack) -> None:
        try:
            async with aclosing(self._follower.records(idle_s=math.inf)) as records:
                async for record in records:
                    if record is None:
                        continue
                    data = await self._finish(record.data, held) if record.terminal and self._finish else record.data
                    if body := frames(data, record.log, record.stream):
                        await self._send(send, body)
        except (BusError, OSError) as error:
            # The client comes back with the last id that it got.
            logger.warning("stream_broken_off", error=repr(error))
        except Exception:
            logger.exception("stream_failed")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
