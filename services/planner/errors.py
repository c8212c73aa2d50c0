"""What stops the planner from doing as it is told."""

from contracts.faults import Code, Fault


class PlannerError(Exception):
    """Base of the planner's own errors."""


class CannotOpen(PlannerError):
    """The run cannot be opened as it was asked for; it ends with this fault."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.fault = Fault(code=code, reason=reason)
