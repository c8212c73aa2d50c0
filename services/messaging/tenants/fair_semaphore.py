"""Permits by key, each key's given in the order in which they were asked for: for example the calls of a tool."""

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Queue:
    limit: int
    taken: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairSemaphore(Generic[K]):
    """Permits by key. Whoever takes one says how many there are now. A key of which nobody has one takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[K, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def take_now(self, key: K, limit: int) -> bool:
        """Take a permit if one is free, and nobody waits for it. Otherwise call `wait`."""
        queue = self._queues.get(key)
        if queue is None:
            if limit <= 0:
                return False
            queue = self._queues[key] = _Queue(limit)
        queue.limit = limit
        if queue.waiting or queue.taken >= limit:
            return False
        queue.taken += 1
        return True

    async def wait(self, key: K, within_s: float | None = None) -> bool:
        """Take a permit that was not free, in the order of arrival. Returns whether one became free in time."""
        queue = self._queues[key]
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(permit)
        try:
            await asyncio.wait({permit}, timeout=within_s)
        except asyncio.CancelledError:
            if permit.done():
                self.give_back(key)
            raise
        finally:
            if not permit.done():
                queue.waiting.remove(permit)
        return permit.done()

    def give_back(self, key: K) -> None:
        """Free a permit, or pass it on to the one who waits longest. Changes nothing if nobody has one."""
        queue = self._queues.get(key)
        if queue is not None:
            self.correct(key, max(0, queue.taken - 1))

    def correct(self, key: K, taken: int) -> None:
        """Set how many permits of a key are taken, as somebody knows who counts all of them."""
        queue = self._queues.get(key)
        if queue is None:
            return
        queue.taken = taken
        while queue.waiting and queue.taken < queue.limit:
            queue.taken += 1
            queue.waiting.popleft().set_result(None)
        if not queue.taken and not queue.waiting:
            del self._queues[key]

    def is_waited_for(self, key: K) -> bool:
        """Whether somebody waits for a permit of a key."""
        return key in self._queues and bool(self._queues[key].waiting)

    def forget_taken(self) -> None:
        """Forget the permits of all keys for which nobody waits: their number was lost, or does not matter."""
        self._queues = {key: queue for key, queue in self._queues.items() if queue.waiting}
