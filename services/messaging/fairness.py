"""Divides the scarce resources of a process among tenants: permits in order of arrival, and time slices.

Work that waits, for example for a model, costs almost nothing, and a process holds thousands of such items. But a
thousand requests of one tenant that start at once delay everybody else. So only a few items run at a time, and one per
tenant while several tenants have work. Waiting items queue per tenant. The queues take turns, and within a queue
started items go before new ones.

While other tenants have work, a tenant whose queue does not empty pauses after each time slice, for as long as that
took. It uses half of the capacity, and the others find the other half free at once.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Permits:
    limit: int
    taken: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class FairSemaphore(Generic[K]):
    """A semaphore for each key, fair in the order of arrival. A key without a taken permit uses no memory.

    Each `take_now` sets the limit of its key.
    """

    def __init__(self) -> None:
        self._queues: dict[K, _Permits] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def take_now(self, key: K, limit: int) -> bool:
        """Take a permit if one is free, and nobody waits for it. Otherwise call `wait`."""
        queue = self._queues.get(key)
        if queue is None:
            if limit <= 0:
                return False
            queue = self._queues[key] = _Permits(limit)
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


_MAX_TIME_SLICES = 16
"""Enough time slices at once to use the CPU while some wait for NATS."""
_SHARING_WINDOW_S = 10.0
"""Tenants that had work within this many seconds share."""
_MAX_TIME_SLICE_S = 0.25
_MODEL_REQUEST_S = 0.05
"""Time for sending a request to a model, which takes some milliseconds of CPU."""
_TIMER_PARTS = 5
"""A time slice is timed in this many parts. If the event loop is late, each part is late, and the slice is longer."""


@dataclass(slots=True)
class _Queue:
    """The waiting work of one tenant: items that had a time slice before, and new ones."""

    started: deque[asyncio.Future[None]] = field(default_factory=deque)
    new: deque[asyncio.Future[None]] = field(default_factory=deque)

    def next(self) -> asyncio.Future[None] | None:
        """Remove and return the first item that still waits."""
        while self.started or self.new:
            waiter = (self.started or self.new).popleft()
            if not waiter.done():
                return waiter
        return None


class TimeSlices:
    """Gives time slices to tenants one after another. `capacity`: time slices at once."""

    def __init__(self, capacity: int = _MAX_TIME_SLICES) -> None:
        self._capacity = self._free = capacity
        self._held: Counter[str] = Counter()
        self._queues: OrderedDict[str, _Queue] = OrderedDict()
        self._active: OrderedDict[str, float] = OrderedDict()
        """Tenant -> when it last had work, the latest at the end."""
        self._started_at: dict[str, float] = {}
        self._resting: set[str] = set()

    async def take(self, tenant: str, *, is_new: bool) -> None:
        """Return when the tenant has a time slice. `is_new`: the item queues behind started ones."""
        now = time.monotonic()
        self._active[tenant] = now
        self._active.move_to_end(tenant)
        while now - next(iter(self._active.values())) > _SHARING_WINDOW_S:
            self._active.popitem(last=False)
        if tenant not in self._queues and self._may_start(tenant):
            self._start(tenant)
            return
        queue = self._queues.setdefault(tenant, _Queue())
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (queue.new if is_new else queue.started).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back(tenant)
            raise

    def give_back(self, tenant: str) -> None:
        """End a time slice, and start waiting items that may start now."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
            took_s = time.monotonic() - self._started_at.pop(tenant)
            if len(self._active) > 1 and tenant in self._queues:
                self._resting.add(tenant)
                asyncio.get_running_loop().call_later(min(took_s, _MAX_TIME_SLICE_S), self._end_rest, tenant)
        self._start_waiting()

    def _end_rest(self, tenant: str) -> None:
        self._resting.discard(tenant)
        self._start_waiting()

    def _start_waiting(self) -> None:
        for waiting in list(self._queues):
            while self._may_start(waiting):
                waiter = self._queues[waiting].next()
                if waiter is None:
                    del self._queues[waiting]
                    break
                self._queues.move_to_end(waiting)
                self._start(waiting)
                waiter.set_result(None)

    def _may_start(self, tenant: str) -> bool:
        if self._free <= 0 or tenant in self._resting:
            return False
        return self._held[tenant] < (1 if len(self._active) > 1 else self._capacity)

    def _start(self, tenant: str) -> None:
        self._free -= 1
        self._held[tenant] += 1
        self._started_at[tenant] = time.monotonic()


class TimeSlice:
    """The time slice of one item of work, which can take it, end it and take it again.

    It ends by itself after `_MAX_TIME_SLICE_S`: work that takes so long waits for something other than the CPU.
    """

    def __init__(self, time_slices: TimeSlices, tenant: str, *, is_new: bool) -> None:
        self._time_slices = time_slices
        self._tenant = tenant
        self._is_new = is_new
        self._ending: asyncio.TimerHandle | None = None
        self._taking = asyncio.Lock()

    async def take(self) -> None:
        """Return when this item has its time slice; at once if it still has it."""
        if self._ending is not None:
            return
        async with self._taking:
            if self._ending is None:
                await self._time_slices.take(self._tenant, is_new=self._is_new)
                self._is_new = False
                self._end_in(_MAX_TIME_SLICE_S)

    def end_soon(self) -> None:
        """End the time slice once there was time to send a request to a model."""
        if self._ending is not None:
            self._end_in(_MODEL_REQUEST_S)

    def end(self) -> None:
        """End the time slice, if it has not ended."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            self._time_slices.give_back(self._tenant)

    def _end_in(self, seconds: float, parts: int = _TIMER_PARTS) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if parts:
            self._ending = asyncio.get_running_loop().call_later(
                seconds / _TIMER_PARTS, self._end_in, seconds, parts - 1
            )
        else:
            self.end()
