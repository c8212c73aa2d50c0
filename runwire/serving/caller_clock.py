"""The clock by which callers set deadlines, as far as their requests tell. The clock of this machine may be wrong.

Rule 1: a request comes from the past. If one seems to come from the future, this clock is behind.
Rule 2: a request that seems to come late is declined: it may be old, since it waits in the socket while this process
is stopped, or is written by a caller that was stopped. The caller repeats it only after it has read the decline. So the
repetition is new, and the time by which it still seems late is how far this clock is ahead.

Notice that this process was stopped for a while (SIGSTOP, a frozen machine).

What it then reads from its socket may be old, and may have been cancelled since.

Rule 1: no clock of another machine is compared. A cancel comes after its request in the same socket, so everything that
waits there is read before a request is started.
Rule 2: without a stall this costs one comparison per request.
"""

import asyncio
import time
from collections import OrderedDict

from contracts.tools.messages import ToolCall

STALL_S = 1.0
"""A longer gap between two ticks, which come every half second, means that the process was stopped. It is shorter than
every caller's silence timeout."""
_READ_BACKLOG_S = 0.2
"""Enough to read what waits in the socket."""
_AFTER_STALL_S = 1.0
"""Seconds after a stall in which a request may be an old one from the socket."""


class StallDetector:
    """Ticks while the process runs."""

    def __init__(self) -> None:
        self._last_tick_at = time.monotonic()
        self._resumed_at = float("-inf")

    def tick(self) -> None:
        """Record that the process runs. A long gap before it was a stall."""
        now = time.monotonic()
        if now - self._last_tick_at > STALL_S:
            self._resumed_at = now
        self._last_tick_at = now

    @property
    def just_resumed(self) -> bool:
        """Whether what is read now may have waited in the socket during a stall."""
        self.tick()
        return self._last_tick_at - self._resumed_at < _AFTER_STALL_S

    async def read_backlog(self) -> None:
        """Return once what waited in the socket has been read."""
        await asyncio.sleep(max(0.0, self._resumed_at + _READ_BACKLOG_S - time.monotonic()))


_REMEMBERED = 1000


class CallerClock:
    """The callers' clock, for all tools of this process. Without a reason to doubt it is that of this machine."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._declined: OrderedDict[tuple[str, int], None] = OrderedDict()

    def ms_until(self, deadline_at: int) -> int:
        """Return the time until a deadline of a caller."""
        return self.local(deadline_at) - _own_ms()

    def local(self, deadline_at: int) -> int:
        """Return a caller's time as this machine's clock shows it then."""
        return deadline_at + self._ahead_ms

    def may_begin(self, call: ToolCall) -> bool:
        """Whether a call may begin now, as far as its request says."""
        return self.ms_until(min(call.deadline_at, call.start_by or call.deadline_at)) >= 0

    def is_late(self, call: ToolCall) -> bool:
        """Whether a request comes too late to be started. If so, it is expected to be declined."""
        key = (call.idempotency_key, call.round)
        if call.sent_at is not None:
            seems_ahead_ms = _own_ms() - call.sent_at
            was_declined = self._declined.pop(key, 0) is None
            self._ahead_ms = seems_ahead_ms if was_declined else min(self._ahead_ms, seems_ahead_ms)
        if self.may_begin(call):
            return False
        if call.understands_declined:
            self._declined[key] = None
            if len(self._declined) > _REMEMBERED:
                self._declined.popitem(last=False)
        return True


def _own_ms() -> int:
    return time.time_ns() // 1_000_000
