"""Notice that this process was stopped for a while (SIGSTOP, a frozen machine).

What it then reads from its socket may be old, and may have been cancelled since.

Rule 1: no clock of another machine is compared. A cancel comes after its request in the same socket, so everything that
waits there is read before a request is started.
Rule 2: without a stall this costs one comparison per request.
"""

import asyncio
import time

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
