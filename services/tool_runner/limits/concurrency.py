"""Keeps the calls of each tool that this process makes within a limit, over both paths.

Stored calls wait for a place; direct calls are declined without one.
"""

import asyncio
from collections import Counter, deque


class Concurrency:
    """Places for the calls of each tool."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._direct: Counter[str] = Counter()
        """How many of them are direct calls."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def take_directly(self, tool: str, limit: int, direct_limit: int) -> bool:
        """Take a place for a direct call, if one is free and no stored call waits for it."""
        if self._waiting.get(tool) or self._taken[tool] >= limit or self._direct[tool] >= direct_limit:
            return False
        self._taken[tool] += 1
        self._direct[tool] += 1
        return True

    async def take(self, tool: str, limit: int) -> None:
        """Take a place for a stored call, in the order of arrival."""
        if not self._waiting.get(tool) and self._taken[tool] < limit:
            self._taken[tool] += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tool, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(tool)
            raise

    def give_back(self, tool: str, *, direct: bool = False) -> None:
        """Free a place, or pass it on to the stored call that waits longest."""
        if direct:
            self._direct[tool] -= 1
        waiting = self._waiting.get(tool)
        while waiting:
            place = waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._waiting.pop(tool, None)
        self._taken[tool] -= 1
        if not self._taken[tool]:
            del self._taken[tool], self._direct[tool]
