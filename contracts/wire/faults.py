"""Errors in messages: a code for programs, a reason for people."""

from typing import Any, Literal

from pydantic import field_validator

from .base import Message

Code = Literal[
    "bad_request",
    "invalid_args",
    "missing_output_field",
    "invalid_result",
    "result_too_large",
    "tool_error",
    "tool_refused",
    "tool_timed_out",
    "tool_unavailable",
    "outcome_unknown",
    "unknown_tool",
    "approval_missing",
    "approval_expired",
    "rejected",
    "input_refused",
    "invalid_pause",
    "deadline_passed",
    "model_failed",
    "model_refused",
    "model_rate_limited",
    "response_format_refused",
    "context_too_long",
    "vision_unsupported",
    "artifact_not_found",
    "artifact_too_large",
    "artifact_invalid",
    "storage_unavailable",
    "unparseable_reply",
    "too_many_attempts",
    "session_busy",
    "session_deleting",
    "queue_timeout",
    "not_found",
    "task_not_found",
    "group_not_found",
    "group_not_joinable",
    "group_not_complete",
    "task_in_group",
    "already_decided",
    "already_ended",
    "nothing_held",
    "too_many_tasks",
    "too_deep",
    "too_many_hops",
    "budget_exhausted",
    "poisoned",
    "internal",
]
"""All codes. docs/operations.md says what to do about each."""


class Fault(Message):
    """A failure. `retryable`: the same request may succeed later."""

    code: Code
    reason: str
    retryable: bool = False

    @field_validator("code", mode="before")
    @classmethod
    def _renamed(cls, code: Any) -> Any:
        """Accept the code that logs of older versions hold for a call that nobody could approve."""
        return "rejected" if code == "approval_unavailable" else code
