"""How many calls of one tenant wait at a tool, so that no tenant can fill the tool's line.

The calls of a tool stand in one line, in the order in which they come, and as many are done at once as the tool says (`concurrency`). So
nobody may have more calls in it than the tool does at once, and where several tenants ask, than three quarters of that: further calls wait
here, in the handling that announced them, and the next tenant finds a place. A run that waits here costs no more than one that waits for a
model.

What is in the line the server knows; it is asked while somebody waits, and in between what this planner sends and receives is counted.
Several planners together may let a few more through.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

import structlog

from contracts import subjects
from services.messaging.connection import Bus
from services.messaging.errors import BusError

logger = structlog.get_logger(__name__)

_CHECK_S = 0.25
_TOGETHER_S = 60.0
"""Tenants that asked within so many seconds share."""
_MOST_LINES = 10_000


@dataclass(slots=True)
class _Line:
    """The calls of a tenant to a tool."""

    limit: int = 1
    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    checking: asyncio.Task[None] | None = None

    def let_go(self) -> None:
        """Give places to those that wait, as far as there are any."""
        while self.waiting and self.under_way < self.limit:
            place = self.waiting.popleft()
            if not place.done():
                self.under_way += 1
                place.set_result(None)


class CallPlaces:
    """Gives out the places of tenants in the lines of tools."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lines: dict[tuple[str, str], _Line] = {}
        self._seen: dict[str, dict[str, float]] = {}
        """Tool -> tenant -> when it asked last."""

    def take(self, tenant: str, tool: str, concurrency: int) -> bool:
        """Take a place if there is one. Whoever got none waits for it (`wait`)."""
        line = self._line(tenant, tool)
        line.limit = self._limit(tenant, tool, concurrency)
        if line.waiting or line.under_way >= line.limit:
            return False
        line.under_way += 1
        return True

    async def wait(self, tenant: str, tool: str, at_most_s: float) -> bool:
        """Wait for a place. Returns whether it is there."""
        line = self._line(tenant, tool)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(place)
        if line.checking is None or line.checking.done():
            line.checking = asyncio.create_task(self._check(line, subjects.calls_of_tenant(tenant, tool)))
        await asyncio.wait({place}, timeout=at_most_s)
        if place.done():
            return True
        place.cancel()
        return False

    def give_back(self, tenant: str, tool: str) -> None:
        """A call has come to its end, or was not sent after all."""
        line = self._lines.get((tenant, tool))
        if line is None:
            return
        line.under_way = max(0, line.under_way - 1)
        line.let_go()
        if not line.under_way and not line.waiting:
            del self._lines[tenant, tool]

    def _line(self, tenant: str, tool: str) -> _Line:
        line = self._lines.get((tenant, tool))
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines = {key: kept for key, kept in self._lines.items() if kept.waiting}
            line = self._lines[tenant, tool] = _Line()
        return line

    def _limit(self, tenant: str, tool: str, concurrency: int) -> int:
        now = time.monotonic()
        seen = {each: at for each, at in self._seen.get(tool, {}).items() if now - at < _TOGETHER_S}
        self._seen[tool] = seen
        seen[tenant] = now
        return max(1, concurrency * 3 // 4) if len(seen) > 1 else concurrency

    async def _check(self, line: _Line, pattern: str) -> None:
        while line.waiting:
            try:
                state = (await self._bus.api(f"STREAM.INFO.{subjects.CALLS}", {"subjects_filter": pattern}))["state"]
            except BusError as error:
                logger.debug("calls_not_counted", reason=str(error))
            else:
                line.under_way = sum((state.get("subjects") or {}).values())
                line.let_go()
            await asyncio.sleep(_CHECK_S)
