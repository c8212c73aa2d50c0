"""Errors in messages: a code for programs, a reason for people. `describe` says why a value does not fit a model."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, ValidationError

from .base import Message, is_absent

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
    "field_refused",
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
"""All codes. docs/tools.md says what leads to each."""


class Fault(Message):
    """A failure. `retryable`: the same request may succeed later."""

    code: Code
    reason: str
    retryable: bool = False
    tool_code: str | None = Field(
        default=None, exclude_if=is_absent, description="the tool's own code, where it is none of these"
    )


MAX_FAULTS = 5
"""`describe` leaves out more faults than these unless it is told otherwise."""


def dotted(path: tuple[int | str, ...]) -> str:
    """Return the path of a field, `limits.max_steps`."""
    return ".".join(map(str, path))


def describe(
    error: ValidationError, *, limit: int | None = MAX_FAULTS, name_of: Callable[[tuple[int | str, ...]], str] = dotted
) -> str:
    """Return `field: what it should be` for each of the first `limit` faults. `name_of`: the name of a path.

    The sentence never contains the value, which may be secret or long.
    """
    faults: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)[:limit]
    said = []
    for fault in faults:
        name = name_of(fault["loc"])
        message = "there is no such field" if fault["type"] == "extra_forbidden" else fault["msg"]
        said.append(f"{name}: {message}" if name else message)
    return "; ".join(said)
