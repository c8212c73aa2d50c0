"""Decides when the chunks of this process may leave, so that under load they grow before they become late. No I/O.

Rule 1: few writes of chunks are in flight, over all runs. The next one begins when an acknowledgement is handled here,
so a slow server, many runs and a late event loop all make chunks wait, and their text grows meanwhile. NATS stores
writes one after another: more of them would only wait there, in front of the records of all runs.
Rule 2: the runs take turns. The first chunk of a reply goes before those that are not the first of theirs.
"""

from collections import deque
from collections.abc import Callable

MAX_IN_FLIGHT = 16
"""With fewer, a busy process leaves NATS idle between two steps of its event loop; with more, other records wait."""
LOST_AFTER_S = 1.0
"""A write that takes longer does not count as in flight: it is being repeated, or NATS is unavailable."""


class ChunkPace:
    """The chunks of all runs of this process. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at: dict[object, float] = {}
        """Of each write in flight, the oldest first."""
        self._firsts: deque[tuple[object, Callable[[], bool]]] = deque()
        self._others: deque[tuple[object, Callable[[], bool]]] = deque()

    def enter(self, write: object, begin: Callable[[], bool], *, is_first: bool) -> None:
        """Call `begin` once few enough writes are in flight. It returns whether it has begun one.

        `leave` must follow when that one has ended.
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
