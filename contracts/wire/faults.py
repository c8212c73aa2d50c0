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
MEANINGS: dict[Code, str] = {
    "bad_request": "An unknown agent or strategy, a model that nobody configured, or invalid limits.",
    "invalid_args": "The arguments do not fit the tool's schema; it is not called.",
    "missing_output_field": "An argument refers to what an earlier result lacks; the tool is not called.",
    "invalid_result": "The answer is not JSON, too deep, or does not fit the output schema: the tool's log says why.",
    "result_too_large": "The result is larger than a limit.",
    "tool_error": "The tool says that it failed: its log and the reason say why.",
    "tool_refused": "The tool does not take the call.",
    "tool_timed_out": "The tool was silent for its `timeout_s`; it gets a cancel.",
    "tool_unavailable": "Nobody served the tool for 5 s, or its process died in each of three attempts.",
    "outcome_unknown": "The tool's process died, or lost NATS: the call may have happened or not, and is not repeated.",
    "unknown_tool": "The request names a tool that is not available: `runwire tools` lists them.",
    "approval_missing": "An approval is missing, or is of another call; the tool is not called.",
    "approval_expired": "Nobody decided about the call in time; the tool is not called.",
    "rejected": "A person rejected the call; the tool is not called.",
    "input_refused": "A rule of the agent (`input_rules`), or the person whom it asks, does not admit the user's text.",
    "invalid_pause": "The tool asked a person in a form that cannot be used.",
    "deadline_passed": "The deadline of the run passed during the call.",
    "model_failed": "The provider failed, also after retries and fallbacks, or there is no key for it: see the reason.",
    "model_refused": "The provider refused the content or the request: the reason is in the payload.",
    "model_rate_limited": "The provider asks for a longer pause than the run has left: fewer runs, or another model.",
    "response_format_refused": "A server refused `response_format`, and no retry without it was possible: see its log.",
    "field_refused": "A server refused another field of the request: the reason names it.",
    "context_too_long": "The conversation is too long, even compacted: a model with more context, or smaller results.",
    "vision_unsupported": "Images for a model that takes none: see `RUNWIRE_MODEL_VISION`, `vision: lenient`.",
    "artifact_not_found": "The artifact is unknown, expired or deleted, or of another tenant, session or run.",
    "artifact_too_large": "The artifact is above a limit, which the reason names.",
    "artifact_invalid": "The bytes are not what was announced (type, size, digest), or the id is taken.",
    "storage_unavailable": "The artifact store, its S3 server or NATS did not answer in time: see `/readyz`.",
    "unparseable_reply": "The model's reply is no action.",
    "too_many_attempts": "Several attempts to call the model died with their process: see the logs of planners.",
    "session_busy": "Another run has the turn, and the request says `reject`; or 1,000 runs wait for it.",
    "session_deleting": "The session is being deleted: ask again once it is gone, or in another one.",
    "queue_timeout": "The run waited for its turn as long as `queue_timeout_s`: look at the run before it.",
    "not_found": "The session belongs to another user than the API key's.",
    "task_not_found": "The session has no such task.",
    "group_not_found": "The session has no such group.",
    "group_not_joinable": "The group is sealed, or has ended.",
    "group_not_complete": "The group is open, or some of its tasks have not ended.",
    "task_in_group": "The task is in a group: decide about that.",
    "already_decided": "Its results were applied, or rejected, before.",
    "already_ended": "The task or group has ended.",
    "nothing_held": "No result of it waits for a person.",
    "too_many_tasks": "The agent's `max_per_run` or `max_open` is reached.",
    "too_deep": "The agent's `max_depth` is reached.",
    "too_many_hops": "The agent's `max_hops` is reached.",
    "budget_exhausted": "A limit is spent; of a spawn: too little is left to reserve.",
    "poisoned": "A message of the run could not be processed: it is in DEAD, with the reason.",
    "internal": "Something unforeseen: the log says what.",
}
"""What leads to each, and what to do; docs/rules/codes.md is made of it."""


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
