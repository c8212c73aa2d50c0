"""Decides when chunks of this process are written, so that under load they become larger, not later. No I/O.

Rule 1: at most 16 chunks of all runs together are being written. The next write begins when an acknowledgement is
handled, so with a slow server, many runs or a late event loop chunks wait, and their text grows meanwhile. NATS stores
one write after another: more of them would wait there, in front of other records.
Rule 2: chunks are written in the order in which they were ready, but first chunks of replies before all others.
"""

from collections import deque
from collections.abc import Callable

MAX_IN_FLIGHT = 16
"""With fewer, a busy process leaves NATS idle between two steps of its event loop; with more, other records wait."""
LOST_AFTER_S = 1.0
"""A write that takes longer does not count as in flight: it is being repeated, or NATS is unavailable."""


class ChunkPace:
    """The chunks of all runs of this process. `clock`: returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at: dict[object, float] = {}
        """Of each write in flight, the oldest first."""
        self._firsts: deque[tuple[object, Callable[[], bool]]] = deque()
        self._others: deque[tuple[object, Callable[[], bool]]] = deque()

    def enter(self, write: object, begin: Callable[[], bool], *, is_first: bool) -> None:
        """Call `begin` once few enough writes are in flight. `begin` returns whether it has begun a write.

        Call `leave` when that write has ended.
        """
        (self._firsts if is_first else self._others).append((write, begin))
        self._begin_next()

    def leave(self, write: object) -> None:
        """Note that a write has ended, and begin others."""
        self._began_at.pop(write, None)
        self._begin_next()

    def _begin_next(self) -> None:
        while (waiting := self._firsts or self._others) and self._has_room():
            write, begin = waiting.popleft()
            if begin():
                self._began_at[write] = self._clock()

    def _has_room(self) -> bool:
        if len(self._began_at) < MAX_IN_FLIGHT:
            return True
        oldest = next(iter(self._began_at))
        if self._clock() - self._began_at[oldest] < LOST_AFTER_S:
            return False
        del self._began_at[oldest]
        return True
