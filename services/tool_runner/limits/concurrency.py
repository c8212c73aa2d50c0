"""Keeps the calls of each tool that this process makes within a limit, over both paths.

Stored calls wait for a place; direct calls are declined without one.
"""

from services.messaging.tenants.fair_semaphore import FairSemaphore


class Concurrency:
    """Places for the calls of each tool."""

    def __init__(self) -> None:
        self._all: FairSemaphore[str] = FairSemaphore()
        self._direct: FairSemaphore[str] = FairSemaphore()

    def take_directly(self, tool: str, limit: int, direct_limit: int) -> bool:
        """Take a place for a direct call, if one is free and no stored call waits for it."""
        if not self._direct.take_now(tool, direct_limit):
            return False
        if self._all.take_now(tool, limit):
            return True
        self._direct.give_back(tool)
        return False

    async def take(self, tool: str, limit: int) -> None:
        """Take a place for a stored call, in the order of arrival."""
        if not self._all.take_now(tool, limit):
            await self._all.wait(tool)

    def give_back(self, tool: str, *, direct: bool = False) -> None:
        """Free a place, or pass it on to the stored call that waits longest."""
        if direct:
            self._direct.give_back(tool)
        self._all.give_back(tool)
