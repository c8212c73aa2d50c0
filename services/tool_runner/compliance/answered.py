"""What a tool answers to a call, against the standard form. Pure: what was sent and received comes in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from contracts.tools.checks import Finding
from contracts.tools.responses import MAX_OWN_ID_CHARACTERS

from .findings import NAMES, RESPOND, failed, listed, ok, warning

_LARGE_BYTES = 1_000_000
"""A payload with a larger artifact has a warning."""
_CLOCK_S = 60
_MADE_ANEW = frozenset({"executed_at", "execution_id"})
"""Members of `_metadata` that differ where a call runs again."""
_METADATA = "ToolResponse fills it; without it copy it from the request: docs/tools.md#a-result-that-is-an-artifact"


@dataclass(frozen=True, slots=True)
class Sent:
    """What the call bore. `at`: when it was sent, in Unix seconds."""

    tool: str
    context_id: str
    request_id: str
    trace_id: str
    user_id: str
    at: float
    skill_id: str | None = None
    """Of the arguments."""
    takes_skill: bool = True
    """Whether there is such an argument."""


@dataclass(frozen=True, slots=True)
class Answered:
    """How the call ended, at this time in Unix seconds.

    `failure`: why there is no result; `complaint`: why the result is not accepted.
    """

    at: float
    latency_ms: int = 0
    failure: str | None = None
    complaint: str | None = None
    value: Any = None
    size: int = 0
    content: str | None = None
    is_standard: bool = False
    """Whether the result counts as one in the standard form."""
    skill_id: str | None = None
    artifact_type: str | None = None
    executed_at: float | None = None
    """Of `_metadata`, in Unix seconds; None: it has none, or none as ISO 8601 in UTC with Z."""


def answer_findings(sent: Sent, answered: Answered) -> list[Finding]:
    """Return the lines about an answer; few where there is no result, or none in the standard form."""
    if answered.failure is not None:
        return [failed("call", answered.failure, "the log of the tool says more")]
    call = ok("call", f"answered after {answered.latency_ms} ms")
    if answered.complaint is not None:
        return [call, failed("result", answered.complaint, "return what the output schema says"), _content(answered)]
    return [
        call,
        ok("result", "it fits the output schema"),
        *(_standard(sent, answered) if answered.is_standard else [_no_standard_form(answered.value)]),
        _content(answered),
        _size(answered),
    ]


def _no_standard_form(value: Any) -> Finding:
    if not isinstance(value, dict):
        return failed("standard form", "the result is no object", RESPOND)
    missing = [name for name in NAMES if name not in value]
    return failed("standard form", f"the result has no {listed(missing)}", RESPOND)


def _standard(sent: Sent, answered: Answered) -> Iterator[Finding]:
    value = answered.value
    yield ok("standard form", f"the result has {listed(list(NAMES))}")
    yield _artifact_id(value["artifact_id"])
    if isinstance(value["artifact"], dict):
        yield ok("artifact", "it is an object")
    else:
        yield warning("artifact", "it is no object, so plans can name nothing in it", "return an object")
    yield from _metadata(sent, answered)
    yield _skill(sent, answered)
    if answered.artifact_type is None:
        yield warning("artifact_type", "neither the schema nor the artifact tells it", "set x-artifact-type")
    else:
        yield ok("artifact_type", answered.artifact_type)


def _artifact_id(found: Any) -> Finding:
    wanted = f"give it a text of 1 to {MAX_OWN_ID_CHARACTERS} characters"
    if not isinstance(found, str):
        return failed("artifact_id", "it is no text", wanted)
    if not found.strip():
        return failed("artifact_id", "it is empty", wanted)
    if len(found) > MAX_OWN_ID_CHARACTERS:
        return failed("artifact_id", f"it has {len(found)} characters", wanted)
    return ok("artifact_id", found)


def _metadata(sent: Sent, answered: Answered) -> Iterator[Finding]:
    found = answered.value["_metadata"]
    if not isinstance(found, dict):
        yield failed("_metadata", "it is no object", _METADATA)
        return
    wanted = {
        "context_id": (sent.context_id, "the session of the run, else the run"),
        "request_id": (sent.request_id, "that of the request"),
        "trace_id": (sent.trace_id, "that of the request"),
        "user_id": (sent.user_id, "that of the request"),
        "tool_name": (sent.tool, "the name of the tool"),
    }
    for name, (value, meaning) in wanted.items():
        what = f"_metadata.{name}"
        if name not in found:
            yield failed(what, f"it is missing; it is {meaning}", _METADATA)
        elif found[name] != value:
            yield failed(what, f"it is not {meaning}, which was {value}", _METADATA)
        else:
            yield ok(what, str(value))
    yield _executed_at(found, sent, answered)


def _executed_at(metadata: dict[str, Any], sent: Sent, answered: Answered) -> Finding:
    what = "_metadata.executed_at"
    name = time_name(metadata)
    if metadata.get(name) is None:
        return failed(what, "it is missing; it is the time of the execution", _METADATA)
    if answered.executed_at is None:
        return failed(what, "it is no time as ISO 8601 in UTC with Z", "write it as 2025-01-31T12:00:00.000Z")
    if not sent.at - _CLOCK_S <= answered.executed_at <= answered.at + _CLOCK_S:
        mend = "take the time of the execution; is the clock set?"
        return failed(what, f"{metadata[name]} is not the time of this call", mend)
    if name == "timestamp":
        return warning(what, "it is named timestamp", "name it executed_at")
    return ok(what, str(metadata[name]))


def time_name(metadata: dict[str, Any]) -> str:
    """Return the name under which metadata has the time of the execution: `timestamp` is read too."""
    return "timestamp" if "executed_at" not in metadata and "timestamp" in metadata else "executed_at"


def _skill(sent: Sent, answered: Answered) -> Finding:
    if answered.skill_id is None and sent.skill_id is not None:
        return failed(
            "skill_id",
            "the call named a skill, and the result names none",
            "give skill_id to ToolResponse, or set it in _metadata",
        )
    if answered.skill_id is None:
        return ok("skill_id", "the result names no skill: right for a tool without skills")
    if not sent.takes_skill:
        says = f"the result names the skill {answered.skill_id}, and there is no argument skill_id"
        return warning("skill_id", says, "take skill_id as an argument, so that callers can choose the skill")
    if sent.skill_id is not None and answered.skill_id != sent.skill_id:
        return warning("skill_id", f"the result names {answered.skill_id}, the call named {sent.skill_id}", "compare")
    return ok("skill_id", answered.skill_id)


def _content(answered: Answered) -> Finding:
    if answered.content is None:
        hint = "send content: a short text that says what was made"
        return warning("content", "there is no text for the model, which reads a preview of the artifact", hint)
    return ok("content", f"{len(answered.content)} characters for the model")


def _size(answered: Answered) -> Finding:
    if answered.size > _LARGE_BYTES:
        return warning("size", f"the result has {answered.size} bytes", "large artifacts cost time; keep it below 1 MB")
    return ok("size", f"{answered.size} bytes")


def repetition_finding(first: Answered, again: Answered, *, is_idempotent: bool) -> Finding:
    """Return the line about the same call, asked for once more under the same call id."""
    mend = "keep the answers of calls for a while, by idempotency_key, and answer tool.<name>.status"
    if again.failure is not None and not is_idempotent:
        lost = "the tool does not know the call any more, so a crash of a tool runner would leave its outcome unknown"
        return warning("repetition", lost, mend)
    if again.failure is not None:
        return failed("repetition", f"the same call, repeated, fails: {again.failure}", mend)
    if (again.value, again.content, again.complaint) == (first.value, first.content, None):
        return ok("repetition", "the same call, repeated, gives the same answer")
    runs_again = _without_times(again.value) == _without_times(first.value)
    if runs_again and (again.content, again.complaint) == (first.content, None):
        return warning("repetition", "the same call, repeated, runs again: only its time differs", mend)
    return failed("repetition", "the same call, repeated, gives another answer", mend)


def _without_times(value: Any) -> Any:
    """Return a result without what differs where a call runs again."""
    metadata = value.get("_metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        return value
    kept = {name: each for name, each in metadata.items() if name not in _MADE_ANEW}
    return {**value, "_metadata": kept, "mcp_execution_id": None}
