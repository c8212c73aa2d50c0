"""Errors of the planner."""

from contracts.faults import Code, Fault


class PlannerError(Exception):
    """Base of the planner's own errors."""


class CannotOpen(PlannerError):
    """The run of a request cannot be opened. It ends with this fault."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.fault = Fault(code=code, reason=reason)
