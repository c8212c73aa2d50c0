"""A lock for each run or session, within this process: handlings that write to one log do not outdate each other.

It only saves work. Between processes the fence of the log decides.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyedLocks:
    """Locks by key. Each exists while somebody uses it."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[asyncio.Lock]:
        """Yield the lock of a key, not yet taken."""
        entry = self._locks.setdefault(key, _Lock())
        entry.users += 1
        try:
            yield entry.lock
        finally:
            entry.users -= 1
            if not entry.users:
                self._locks.pop(key, None)
