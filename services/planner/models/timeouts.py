"""How long a reply may take."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from services.planner.models.errors import ModelFailed
from services.planner.models.types import ModelRequest

T = TypeVar("T")


class Patience:
    """The limits of one reply: on silence, and on the whole."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._clock = asyncio.get_running_loop().time
        self._end = None if request.total_s is None else self._clock() + request.total_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await it within both limits. The limits hold over waiting alone, never over what a consumer does between two pieces."""
        idle = self._request.timeout_s
        left = idle if self._end is None else max(0.0, self._end - self._clock())
        try:
            async with asyncio.timeout(min(idle, left)) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            what = f"said nothing for {idle:g} s" if left >= idle else f"did not finish within {self._request.total_s:g} s"
        raise ModelFailed("model_failed", f"{self._request.model} {what}", retryable=True)
