"""What a tool answers to a call, against the form of canonical results. Pure: what was sent and received comes in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from contracts.tools.checks import Finding
from contracts.tools.responses import MAX_OWN_ID_CHARACTERS

from .findings import NAMES, RESPOND, Check, lines_of, listed

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
    """Whether the result counts as a canonical one."""
    skill_id: str | None = None
    artifact_type: str | None = None
    executed_at: float | None = None
    """Of `_metadata`, in Unix seconds; None: it has none, or none as ISO 8601 in UTC with Z."""


def answer_findings(sent: Sent, answered: Answered) -> list[Finding]:
    """Return the lines about an answer; few where there is no result, or no canonical one."""
    if answered.failure is not None:
        return lines_of([("call", "failed", True, answered.failure, "the log of the tool says more")])
    made: Check = ("call", "ok", True, f"answered after {answered.latency_ms} ms", "")
    if answered.complaint is not None:
        wrong: Check = ("result", "failed", True, answered.complaint, "return what the output schema says")
        return lines_of([made, wrong, *_content(answered)])
    fits: Check = ("result", "ok", True, "it fits the output schema", "")
    value = answered.value
    if answered.is_standard:
        form = [*_standard(sent, answered)]
    elif isinstance(value, dict):
        missing = listed([name for name in NAMES if name not in value])
        form = [("standard form", "failed", True, f"the result has no {missing}", RESPOND)]
    else:
        form = [("standard form", "failed", True, "the result is no object", RESPOND)]
    large = f"the result has {answered.size} bytes"
    remedy = "large artifacts cost time; keep it below 1 MB"
    size: list[Check] = [
        ("size", "warning", answered.size > _LARGE_BYTES, large, remedy),
        ("size", "ok", True, f"{answered.size} bytes", ""),
    ]
    return lines_of([made, fits, *form, *_content(answered), *size])


def _standard(sent: Sent, answered: Answered) -> Iterator[Check]:
    key, artifact, metadata = (answered.value[name] for name in NAMES)
    yield "standard form", "ok", True, f"the result has {listed(NAMES)}", ""
    wanted = f"give it a text of 1 to {MAX_OWN_ID_CHARACTERS} characters"
    text = key if isinstance(key, str) else ""
    yield "artifact_id", "failed", not isinstance(key, str), "it is no text", wanted
    yield "artifact_id", "failed", not text.strip(), "it is empty", wanted
    yield "artifact_id", "failed", len(text) > MAX_OWN_ID_CHARACTERS, f"it has {len(text)} characters", wanted
    yield "artifact_id", "ok", True, text, ""
    yield "artifact", "ok", isinstance(artifact, dict), "it is an object", ""
    yield "artifact", "warning", True, "it is no object, so plans can name nothing in it", "return an object"
    if isinstance(metadata, dict):
        yield from _metadata(metadata, sent, answered)
    else:
        yield "_metadata", "failed", True, "it is no object", _METADATA
    skill, none = answered.skill_id, "the call named a skill, and the result names none"
    remedy = "give skill_id to ToolResponse, or set it in _metadata"
    yield "skill_id", "failed", skill is None and sent.skill_id is not None, none, remedy
    yield "skill_id", "ok", skill is None, "the result names no skill: right for a tool without skills", ""
    says = f"the result names the skill {skill}, and there is no argument skill_id"
    remedy = "take skill_id as an argument, so that callers can choose the skill"
    yield "skill_id", "warning", not sent.takes_skill, says, remedy
    differs = f"the result names {skill}, the call named {sent.skill_id}"
    yield "skill_id", "warning", sent.skill_id not in {None, skill}, differs, "compare"
    yield "skill_id", "ok", True, str(skill), ""
    untold = "neither the schema nor the artifact tells it"
    yield "artifact_type", "warning", answered.artifact_type is None, untold, "set x-artifact-type"
    yield "artifact_type", "ok", True, str(answered.artifact_type), ""


def _metadata(found: dict[str, Any], sent: Sent, answered: Answered) -> Iterator[Check]:
    for name, value, meaning in (
        ("context_id", sent.context_id, "the session of the run, else the run"),
        ("request_id", sent.request_id, "that of the request"),
        ("trace_id", sent.trace_id, "that of the request"),
        ("user_id", sent.user_id, "that of the request"),
        ("tool_name", sent.tool, "the name of the tool"),
    ):
        what = f"_metadata.{name}"
        yield what, "failed", name not in found, f"it is missing; it is {meaning}", _METADATA
        yield what, "failed", found.get(name) != value, f"it is not {meaning}, which was {value}", _METADATA
        yield what, "ok", True, str(value), ""
    name, what = time_name(found), "_metadata.executed_at"
    at = answered.executed_at
    missing = "it is missing; it is the time of the execution"
    yield what, "failed", found.get(name) is None, missing, _METADATA
    remedy = "write it as 2025-01-31T12:00:00.000Z"
    yield what, "failed", at is None, "it is no time as ISO 8601 in UTC with Z", remedy
    is_off = at is not None and not sent.at - _CLOCK_S <= at <= answered.at + _CLOCK_S
    remedy = "take the time of the execution; is the clock set?"
    yield what, "failed", is_off, f"{found.get(name)} is not the time of this call", remedy
    yield what, "warning", name == "timestamp", "it is named timestamp", "name it executed_at"
    yield what, "ok", True, str(found.get(name)), ""


def _content(answered: Answered) -> Iterator[Check]:
    none = "there is no text for the model, which reads a preview of the artifact"
    yield "content", "warning", answered.content is None, none, "send content: a short text that says what was made"
    yield "content", "ok", True, f"{len(answered.content or '')} characters for the model", ""


def repetition_finding(first: Answered, again: Answered, *, is_idempotent: bool) -> Finding:
    """Return the line about the same call, asked for once more under the same call id."""
    mend = "keep the answers of calls for a while, by idempotency_key, and answer tool.<name>.status"
    lost = "the tool does not know the call any more, so a crash of a tool runner would leave its outcome unknown"
    fails = f"the same call, repeated, fails: {again.failure}"
    is_same = (again.content, again.complaint) == (first.content, None)
    runs_again = is_same and _without_times(again.value) == _without_times(first.value)
    what, has_failed = "repetition", again.failure is not None
    (found,) = lines_of(
        [
            (what, "warning", has_failed and not is_idempotent, lost, mend),
            (what, "failed", has_failed, fails, mend),
            (what, "ok", is_same and again.value == first.value, "the same call, repeated, gives the same answer", ""),
            (what, "warning", runs_again, "the same call, repeated, runs again: only its time differs", mend),
            (what, "failed", True, "the same call, repeated, gives another answer", mend),
        ]
    )
    return found


def time_name(metadata: dict[str, Any]) -> str:
    """Return the name under which metadata has the time of the execution: `timestamp` is read too."""
    return "timestamp" if "executed_at" not in metadata and "timestamp" in metadata else "executed_at"


def _without_times(value: Any) -> Any:
    """Return a result without what differs where a call runs again."""
    metadata = value.get("_metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        return value
    kept = {name: each for name, each in metadata.items() if name not in _MADE_ANEW}
    return {**value, "_metadata": kept, "mcp_execution_id": None}
