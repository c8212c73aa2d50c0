"""How a tool call can fail.

Each class is one sentence. `code` and `retryable` go to the planner, the text goes to the model.
"""

import re
from typing import ClassVar, get_args

from contracts.tools.messages import ToolFailure
from contracts.wire.faults import Code, Fault
from services.shared.artifacts.errors import ArtifactFailed

_CODES = frozenset(get_args(Code))
_OWN_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class RunEnded(Exception):
    """The run of the call has ended: the call must have no further effect, and its outcome is not needed."""


class AlreadyCompleted(Exception):
    """The call already has its outcome."""


class Declined(Exception):
    """A direct call was not begun, since no instance of the tool could begin it at once."""


class CallFailed(Exception):
    """The call ended without a result."""

    code: ClassVar[Code] = "internal"
    retryable: ClassVar[bool] = False

    def fault(self) -> Fault:
        """Return the failure as the planner receives it."""
        return Fault(code=self.code, reason=str(self), retryable=self.retryable)


class UnknownTool(CallFailed):
    """The specification that the run uses was never announced."""

    code = "unknown_tool"


class ApprovalMissing(CallFailed):
    """The call needs a person's approval, and bears none or that of another call."""

    code = "approval_missing"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"this call of {tool} needs a person's approval, and bears none for exactly these arguments, so {tool} was"
            " not called"
        )


class InvalidArguments(CallFailed):
    """The arguments do not fit the tool's input schema."""

    code = "invalid_args"


class MissingOutputField(CallFailed):
    """An artifact in the arguments lacks the part that is meant."""

    code = "missing_output_field"

    def __init__(self, artifact: str, field: str) -> None:
        """`field`: dotted path in the artifact, up to and including the missing segment."""
        super().__init__(
            f"the artifact {artifact} has no {field}, which the arguments refer to, so the tool was not called"
        )


class InvalidResult(CallFailed):
    """The tool's result is not JSON, or does not fit its output schema."""

    code = "invalid_result"


class InvalidPause(CallFailed):
    """The tool asks a person in a way that cannot be used."""

    code = "invalid_pause"


class ResultTooLarge(CallFailed):
    """The tool's result is larger than the limit."""

    code = "result_too_large"


class ArtifactStoreFailed(CallFailed):
    """The artifact store is unavailable, or refused what the call needs."""

    def __init__(self, reason: str, cause: ArtifactFailed) -> None:
        super().__init__(reason)
        self._cause = cause

    def fault(self) -> Fault:
        """Return the failure as the planner receives it.

        It is not retryable: the tool already ran, so the model decides.
        """
        return Fault(code=self._cause.code, reason=str(self), retryable=False)


class ArtifactNotReadable(CallFailed):
    """The model requested an artifact that it may not read, or that does not exist; the text does not say which."""

    code = "artifact_not_found"

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is no observation of this run under {artifact_id}; only observations that were cut can be read,"
            " what is marked for people cannot"
        )


class ToolUnavailable(CallFailed):
    """No instance serves the tool, or every instance that did died during the call."""

    code = "tool_unavailable"
    retryable = True


class ToolTimedOut(CallFailed):
    """The tool was silent for longer than allowed."""

    code = "tool_timed_out"
    retryable = True


class OutcomeUnknown(CallFailed):
    """The tool may or may not have taken effect, and the call is not safe to repeat."""

    code = "outcome_unknown"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was called, and its process was lost before it answered: whether the call took effect is unknown."
            " Find out before calling it again, since it is not safe to repeat."
        )


class ReadRefused(CallFailed):
    """A tool that may change something, or asks a person, is called by a run only."""

    code = "bad_request"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} cannot be read by: its specification must say that it changes nothing (side_effects none or read),"
            " that a call may be repeated (idempotent), and ask no person. Call it with POST /v1/tools/{tool}/call"
        )


class DeadlinePassed(CallFailed):
    """The deadline of the call has passed."""

    code = "deadline_passed"


class Poisoned(CallFailed):
    """The call's message was delivered too often, or cannot be parsed."""

    code = "poisoned"


class ToolReported(CallFailed):
    """The tool reported a failure."""

    def __init__(self, failure: ToolFailure) -> None:
        super().__init__(failure.reason)
        self._failure = failure

    def fault(self) -> Fault:
        """Return the failure as the planner receives it, beside it the tool's own code if that is not known here."""
        own, is_known = self._failure.code, self._failure.code in _CODES
        # The type is right: `_CODES` are the values of `Code`.
        code: Code = own if is_known else "tool_error"  # type: ignore[assignment]
        tool_code = own if not is_known and _OWN_CODE.fullmatch(own) else None
        return Fault(code=code, reason=self._failure.reason, retryable=self._failure.retryable, tool_code=tool_code)
