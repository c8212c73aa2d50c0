"""Turns at what a process has one of, its CPU above all, fair by tenant.

Work that waits, for a model say, costs next to nothing, and a process holds thousands of pieces of it. But a thousand requests of one
tenant that are all begun at once hold up everybody else. So only a few pieces are worked on at a time, and while several tenants have work,
one of each. Those that wait stand in a line of their tenant's; the lines take turns, and in a line what has begun goes before what is new.

Beside others, a tenant whose line does not end rests after each turn for as long as that was: it takes half of what there is, and others
find the other half free at once, instead of one half of each moment.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

_MAX_TURNS = 16
"""Enough to use the CPU while some wait for NATS."""
_SHARING_WINDOW_S = 10.0
"""Tenants that had work within so many seconds share."""
_MAX_TURN_S = 0.25
_MODEL_REQUEST_S = 0.05
"""To send a request to a model takes some milliseconds of CPU."""
_TIMER_PARTS = 5
"""A turn is timed in so many parts, one after another: where the loop is late, each is late, and the turn as much longer."""


@dataclass(slots=True)
class _Line:
    """Work of one tenant that waits for a turn."""

    begun: deque[asyncio.Future[None]] = field(default_factory=deque)
    new: deque[asyncio.Future[None]] = field(default_factory=deque)

    def next(self) -> asyncio.Future[None] | None:
        """Take out the first that still waits."""
        while self.begun or self.new:
            place = (self.begun or self.new).popleft()
            if not place.done():
                return place
        return None


class Turns:
    """Gives out turns to the tenants one after another."""

    def __init__(self, places: int = _MAX_TURNS) -> None:
        self._places = self._free = places
        self._held: Counter[str] = Counter()
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._seen: OrderedDict[str, float] = OrderedDict()
        """When each tenant had work last, the latest at the end."""
        self._began: dict[str, float] = {}
        self._resting: set[str] = set()

    async def take(self, tenant: str, *, is_new: bool) -> None:
        """Return when it is the tenant's turn. `is_new`: it stands behind what has begun."""
        self._see(tenant)
        if tenant not in self._lines and self._may_begin(tenant):
            self._begin(tenant)
            return
        line = self._lines.setdefault(tenant, _Line())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (line.new if is_new else line.begun).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(tenant)
            raise

    def give_back(self, tenant: str) -> None:
        """End a turn, and begin those that may begin now."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
            took_s = time.monotonic() - self._began.pop(tenant)
            if len(self._seen) > 1 and tenant in self._lines:
                self._resting.add(tenant)
                asyncio.get_running_loop().call_later(min(took_s, _MAX_TURN_S), self._rested, tenant)
        self._begin_waiting()

    def _rested(self, tenant: str) -> None:
        self._resting.discard(tenant)
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        for waiting in list(self._lines):
            while self._may_begin(waiting):
                place = self._lines[waiting].next()
                if place is None:
                    del self._lines[waiting]
                    break
                self._lines.move_to_end(waiting)
                self._begin(waiting)
                place.set_result(None)

    def _may_begin(self, tenant: str) -> bool:
        if self._free <= 0 or tenant in self._resting:
            return False
        return self._held[tenant] < (1 if len(self._seen) > 1 else self._places)

    def _begin(self, tenant: str) -> None:
        self._free -= 1
        self._held[tenant] += 1
        self._began[tenant] = time.monotonic()

    def _see(self, tenant: str) -> None:
        now = time.monotonic()
        self._seen[tenant] = now
        self._seen.move_to_end(tenant)
        while now - next(iter(self._seen.values())) > _SHARING_WINDOW_S:
            self._seen.popitem(last=False)


class Turn:
    """The turn of one piece of work, which it may take, end and take again.

    It ends by itself after `_MAX_TURN_S`: work that takes so long waits for something else than the CPU.
    """

    def __init__(self, turns: Turns, tenant: str, *, is_new: bool) -> None:
        self._turns = turns
        self._tenant = tenant
        self._is_new = is_new
        self._ending: asyncio.TimerHandle | None = None
        self._taking = asyncio.Lock()

    async def take(self) -> None:
        """Return when it is this work's turn; at once if it is still."""
        async with self._taking:
            if self._ending is None:
                await self._turns.take(self._tenant, is_new=self._is_new)
                self._is_new = False
                self._end_in(_MAX_TURN_S)

    def end_soon(self) -> None:
        """End the turn as soon as a model can have been asked."""
        if self._ending is not None:
            self._end_in(_MODEL_REQUEST_S)

    def end(self) -> None:
        """End the turn, if it has not ended."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            self._turns.give_back(self._tenant)

    def _end_in(self, seconds: float, parts: int = _TIMER_PARTS) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if parts:
            self._ending = asyncio.get_running_loop().call_later(seconds / _TIMER_PARTS, self._end_in, seconds, parts - 1)
        else:
            self.end()
