"""Notice that this process was stopped for a while: what it then finds in its socket may be old, and may have been called off since.

Rule 1: no clock of another machine is trusted for this: what was said later stands later in the socket, so all of it is
read first.
Rule 2: an awake process pays one comparison per request.
"""

import asyncio
import time

STALL_S = 1.0
"""A gap between two ticks, which come every half second, that only a stop explains; shorter than anybody's patience
with a silent copy."""
_READ_S = 0.2
"""Enough to read what waits in the socket."""
_DOUBT_S = 1.0


class Waking:
    """Ticks while the process is awake."""

    def __init__(self) -> None:
        self._ticked = time.monotonic()
        self._woke = float("-inf")

    def tick(self) -> None:
        """Say that the process is awake. A long gap before it says that it was not."""
        now = time.monotonic()
        if now - self._ticked > STALL_S:
            self._woke = now
        self._ticked = now

    @property
    def just_woke(self) -> bool:
        """Whether what is read now may have waited in the socket while the process was stopped."""
        self.tick()
        return self._ticked - self._woke < _DOUBT_S

    async def read_on(self) -> None:
        """Return once what waited in the socket has been read."""
        await asyncio.sleep(max(0.0, self._woke + _READ_S - time.monotonic()))
