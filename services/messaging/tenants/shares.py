"""Share a limited number of slots among tenants, so that no tenant can take all of them.

A tenant may take another slot as long as it holds no more than are free. So one tenant alone gets half of them, and a
second one finds the other half; as work ends, two converge to a third each. Running work is never interrupted, and
tenants need not be known in advance. (Switches share buffers in this way, called "dynamic thresholds".)
"""

from collections import Counter


class Shares:
    """Counts the slots that each tenant holds."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._held: Counter[str] = Counter()

    def take(self, tenant: str) -> bool:
        """Take a slot, if the tenant's share allows it."""
        if self._free <= 0 or self._held[tenant] > self._free:
            return False
        self._free -= 1
        self._held[tenant] += 1
        return True

    def give_back(self, tenant: str) -> None:
        """Return a slot."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
