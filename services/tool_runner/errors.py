"""How a tool call can fail. Each class is one sentence; `code` and `retryable` travel to the planner, and the text to the model."""

from typing import ClassVar, get_args

from contracts.faults import Code, Fault
from contracts.tools import ToolFailure
from services.shared.artifacts.errors import ArtifactFailed

_CODES = frozenset(get_args(Code))


class RunEnded(Exception):
    """The run of the call has ended: nothing more may happen in its name, and nobody waits for an outcome."""


class AlreadySettled(Exception):
    """The call has its one outcome."""


class CallFailed(Exception):
    """The call ended without a result."""

    code: ClassVar[Code] = "internal"
    retryable: ClassVar[bool] = False

    def fault(self) -> Fault:
        """What the planner is told."""
        return Fault(code=self.code, reason=str(self), retryable=self.retryable)


class UnknownTool(CallFailed):
    """Nobody has ever announced the specification that the run uses."""

    code = "unknown_tool"


class ApprovalUnavailable(CallFailed):
    """The tool may run only with a person's approval, which nobody can give yet."""

    code = "approval_unavailable"

    def __init__(self, tool: str) -> None:
        super().__init__(f"{tool} may run only with a person's approval, and there is no way to give it yet, so it did not run.")


class InvalidArguments(CallFailed):
    """The arguments do not fit the tool's input schema."""

    code = "invalid_args"


class InvalidResult(CallFailed):
    """What the tool answered is no JSON, or not what its output schema says."""

    code = "invalid_result"


class ResultTooLarge(CallFailed):
    """The tool answered more than can be handled."""

    code = "result_too_large"


class ArtifactStoreFailed(CallFailed):
    """The artifact store is away, or would not take or give what the call needs."""

    def __init__(self, reason: str, cause: ArtifactFailed) -> None:
        super().__init__(reason)
        self._cause = cause

    def fault(self) -> Fault:
        """What the planner is told. What a tool has done already is not undone, so a repetition is the model's to decide."""
        return Fault(code=self._cause.code, reason=str(self), retryable=False)


class ArtifactNotReadable(CallFailed):
    """The model asked for what it may not read, or what is not there; which of the two is not told."""

    code = "artifact_not_found"

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"there is no observation of this run under {artifact_id}; only observations that were cut can be read, what is marked for"
            " people cannot"
        )


class ToolUnavailable(CallFailed):
    """Nobody serves the tool, or all who did died over the call."""

    code = "tool_unavailable"
    retryable = True


class ToolTimedOut(CallFailed):
    """The tool fell silent for longer than it may."""

    code = "tool_timed_out"
    retryable = True


class OutcomeUnknown(CallFailed):
    """The tool may have done its work or not, and it is not safe to ask again."""

    code = "outcome_unknown"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was asked and then lost: whether the call took effect is unknown. Find out before calling it again, since it is not"
            " safe to repeat."
        )


class DeadlinePassed(CallFailed):
    """There is no time left."""

    code = "deadline_passed"


class Poisoned(CallFailed):
    """The call's message was delivered too often, or cannot be read."""

    code = "poisoned"


class ToolReported(CallFailed):
    """The tool itself said that it failed."""

    def __init__(self, failure: ToolFailure) -> None:
        super().__init__(failure.reason)
        self._failure = failure

    def fault(self) -> Fault:
        """What the planner is told: the tool's own code, where it is one of ours."""
        code: Code = self._failure.code if self._failure.code in _CODES else "tool_error"  # type: ignore[assignment]  # just checked
        return Fault(code=code, reason=self._failure.reason, retryable=self._failure.retryable)
