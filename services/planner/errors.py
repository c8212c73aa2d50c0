"""Errors of the planner."""

from pydantic import ValidationError

from contracts.wire.faults import Code, Fault, describe

MAX_REASON_CHARACTERS = 300


class CannotOpen(Exception):
    """The run of a request cannot be opened. It ends with this fault."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.fault = Fault(code=code, reason=reason)


def short(error: Exception) -> str:
    """Describe the fault of a message without its content."""
    text = describe(error, limit=1) if isinstance(error, ValidationError) else str(error)
    return text[:MAX_REASON_CHARACTERS]
