"""Shares of a limited number of places, so that nobody can take them all.

A tenant may take one more place as long as it holds no more than are free. So one tenant alone gets half of them, and the next one finds
the other half; as work ends, two come to a third each. Nobody's work is taken away, and nothing must be known of who may come. (Switches
share their buffers in this way, as "dynamic thresholds".)
"""

from collections import Counter


class Shares:
    """Counts who holds how many of the places."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: Counter[str] = Counter()

    def take(self, tenant: str) -> bool:
        """Take a place, if the tenant's share allows it."""
        if self._free <= 0 or self._held[tenant] > self._free:
            return False
        self._free -= 1
        self._held[tenant] += 1
        return True

    def give_back(self, tenant: str) -> None:
        """Leave a place that was taken."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
