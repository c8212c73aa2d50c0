"""Time limits of a model's reply."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from services.planner.models.errors import ModelFailed
from services.planner.models.types import ModelRequest

T = TypeVar("T")
REST_TIMEOUT_S = 0.2
"""Wait for the rest of a reply that has ended: only a connection whose reply was read to its end can be used again."""


class ReplyTimeouts:
    """The limits of one reply: idle time and total time."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._clock = asyncio.get_running_loop().time
        self._end = None if request.total_s is None else self._clock() + request.total_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await within both limits. Time that the consumer spends between two deltas does not count as idle."""
        idle = self._request.timeout_s
        left = idle if self._end is None else max(0.0, self._end - self._clock())
        try:
            async with asyncio.timeout(min(idle, left)) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            what = (
                f"said nothing for {idle:g} s" if left >= idle else f"did not finish within {self._request.total_s:g} s"
            )
        raise ModelFailed("model_failed", f"{self._request.model} {what}", retryable=True)
