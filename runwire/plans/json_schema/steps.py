"""The work of one check is counted, so that no schema and no plan can make it long."""

MAX_STEPS = 100_000
"""Subschemas and path segments that one check looks at: about 0.2 s."""


class TooManySteps(Exception):
    """The check would take too much work."""


class Steps:
    """The steps that a check may still take."""

    def __init__(self, limit: int = MAX_STEPS) -> None:
        self.limit = limit
        self.left = limit

    def take(self, count: int = 1) -> None:
        """Count steps. Raises TooManySteps beyond the limit."""
        self.left -= count
        if self.left < 0:
            raise TooManySteps
