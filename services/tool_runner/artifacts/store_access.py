"""One call's access to the artifact store: with patience, and only while its run goes on."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from contracts.tools.messages import CallRequested
from services.messaging.connection import Bus
from services.shared.artifacts.client import ArtifactClient
from services.tool_runner.calls.run_watch import RunWatch

T = TypeVar("T")
U = TypeVar("U")

_MAX_CONCURRENT_REQUESTS = 4
_MIN_PATIENCE_S = 1.0


class StoreAccess:
    """Requests of one call to the artifact store. `until`: how long an unavailable store is retried, monotonic time."""

    def __init__(self, bus: Bus, call: CallRequested, watch: RunWatch) -> None:
        self.bus = bus
        self.call = call
        self._watch = watch

    def client(self, until: float) -> ArtifactClient:
        """Return a client with the time that is left, or that the run's deadline leaves."""
        left_s = until - time.monotonic()
        if self.call.deadline_at is not None:
            left_s = min(left_s, self.call.deadline_at / 1000 - time.time())
        return ArtifactClient(self.bus, patience_s=max(left_s, _MIN_PATIENCE_S))

    async def unless_ended(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises RunEnded as soon as the run ends."""
        return await self._watch.unless_ended(work)

    async def for_each(
        self,
        given: Mapping[str, T],
        work: Callable[[ArtifactClient, CallRequested, str, T], Awaitable[U]],
        until: float,
    ) -> dict[str, U]:
        """Run `work` for each path, a few at once. Raises its first error, or RunEnded."""
        return await self.unless_ended(self._for_each(given, work, until))

    async def _for_each(
        self,
        given: Mapping[str, T],
        work: Callable[[ArtifactClient, CallRequested, str, T], Awaitable[U]],
        until: float,
    ) -> dict[str, U]:
        slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        client = self.client(until)

        async def one(path: str, each: T) -> U:
            async with slots:
                return await work(client, self.call, path, each)

        working = [asyncio.create_task(one(path, each)) for path, each in given.items()]
        try:
            return dict(zip(given, await asyncio.gather(*working), strict=True))
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
