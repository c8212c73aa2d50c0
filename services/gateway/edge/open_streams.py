"""Connections that wait for runs: event streams and `/chat`.

They end when the gateway stops, or when their key was removed or changed. Each keeps a task and memory here for as long
as its run takes, so their number is bounded, per tenant and in all.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from services.gateway.auth.caller import Caller
from services.gateway.errors import KeyMissing, TooManyStreams, TryAgain
from services.runtime.http_server import Receive

T = TypeVar("T")


class OpenStreams:
    """Counts the connections that wait for runs, and holds the tasks that a stopping gateway must cancel."""

    def __init__(self, limit: int, limit_per_tenant: int, admits: Callable[[Caller], bool]) -> None:
        """`admits`: whether the key of a caller is still what it was."""
        self._tasks: dict[asyncio.Task[Any], Caller | None] = {}
        self._admits = admits
        self._limit = limit
        self._limit_per_tenant = limit_per_tenant
        self._counts: Counter[str] = Counter()
        self.closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def check(self, tenant: str, **extra: Any) -> None:
        """Raise TooManyStreams or TryAgain when no more connections are allowed. Its body contains `extra`."""
        if self._counts[tenant] >= self._limit_per_tenant:
            raise TooManyStreams(self._limit_per_tenant, **extra)
        if self._counts.total() >= self._limit:
            raise TryAgain("As many connections wait for runs as this gateway holds.", after_s=5, **extra)

    @contextmanager
    def counted(self, tenant: str, **extra: Any) -> Iterator[None]:
        """Count one connection while the block lasts. Raises what `check` raises."""
        self.check(tenant, **extra)
        self._counts[tenant] += 1
        try:
            yield
        finally:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]

    def add(self, task: asyncio.Task[Any], caller: Caller | None = None) -> None:
        """Cancel this task when the gateway stops, and when the key of its caller is gone."""
        self._tasks[task] = caller
        task.add_done_callback(self._tasks.pop)
        if self.closing or self.is_gone(caller):
            task.cancel()

    def is_gone(self, caller: Caller | None) -> bool:
        """Return whether the key of a caller was removed or changed."""
        return caller is not None and not self._admits(caller)

    def end_gone(self) -> None:
        """End the streams whose keys are gone. Their clients come back if they still have a key."""
        for task, caller in self._tasks.items():
            if self.is_gone(caller):
                task.cancel()

    def close(self) -> None:
        """End every stream in good order; the clients come back to another gateway, or to this one's successor."""
        self.closing = True
        for task in self._tasks:
            task.cancel()

    async def while_connected(
        self, receive: Receive, work: Coroutine[Any, Any, T], detail: str, caller: Caller | None = None, **extra: Any
    ) -> T:
        """Return the result of `work`. It is cancelled when the client disconnects or the gateway stops.

        `caller`: also when this one's key is gone. Raises TryAgain with `detail` and `extra` when it was cancelled, or
        KeyMissing. The body of the request must have been read.
        """
        working = asyncio.create_task(work)
        self.add(working, caller)
        disconnected = asyncio.create_task(until_disconnected(receive))
        try:
            await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not working.cancelled():
                return working.result()
            raise KeyMissing("The API key was taken back.") if self.is_gone(caller) else TryAgain(detail, **extra)
        finally:
            working.cancel()
            disconnected.cancel()
            await asyncio.gather(working, disconnected, return_exceptions=True)


async def until_disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
