"""The form of canonical results, as lines of a checklist: what a tool announces, and what it answers to a call.

Pure: what was announced, sent and received comes in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contracts.tools.messages import MAX_OWN_ID_CHARACTERS, Finding, ToolSpec
from runwire.plans import template_paths
from runwire.plans.schema_fields import Fields, Missing
from runwire.plans.schema_folding import ANY, Steps, TooManySteps

MAX_CHARACTERS = 500
"""Of what a line says; texts of tools are cut."""
NAMES = ("artifact_id", "artifact", "_metadata")
"""The members of a canonical result."""
METADATA = ("context_id", "request_id", "trace_id", "user_id", "tool_name", "executed_at")
"""The members of `_metadata` that a canonical result has."""
RESPOND = "return a ToolResponse, or an object with artifact_id, artifact and _metadata"

Check = tuple[str, Literal["ok", "warning", "failed"], object, str, str]
"""A row: what it is about, its status, whether it applies, what it says, and the remedy."""


def lines_of(checks: Iterable[Check]) -> list[Finding]:
    """Return a line for each name: that of its first row which applies; none where no row does."""
    found: dict[str, Finding] = {}
    for name, status, applies, finding, mend in checks:
        if applies and name not in found:
            text = " ".join(finding.split())
            text = text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
            found[name] = Finding(name=name, status=status, finding=text, mend=mend)
    return list(found.values())


def listed(names: Sequence[str], most: int = 8) -> str:
    """Name some things, and say how many there are where they are many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


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
    wants_standard: bool = True
    """Whether the result is to be a canonical one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """How the call ended. `at`: Unix seconds; `failure`: why there is no result; `complaint`: why it is refused."""

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
    judged = [*form, *_content(answered)] if answered.is_standard or sent.wants_standard else []
    return lines_of([made, fits, *judged, *size])


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


_SHOWN_PATHS = 5
_LONG_CALL_S = 60.0
"""The death of a tool that may be silent for longer should show in its heartbeats."""


@dataclass(frozen=True, slots=True)
class Announced:
    """What is known of a tool. `spec`: what it announces, of the highest version; None: nothing that can be used."""

    tool: str
    spec: ToolSpec | None = None
    digest: str = ""
    version: str = ""
    instances: int = 0
    digests: frozenset[str] = field(default_factory=frozenset)
    """Of all that its instances announce now."""
    is_offered: bool = False
    refused: str | None = None
    """Why it, or a specification of it, is not offered."""
    artifact_type: str | None = None
    """What its output schema says of the artifact."""
    wants_standard: bool = True
    """Whether its results are to be canonical ones."""


def declares_standard(spec: ToolSpec) -> bool:
    """Whether a tool says that its results are canonical ones: its output has a member of these, or it takes skills."""
    output, properties = spec.output_schema or {}, spec.input_schema.get("properties")
    members = output.get("properties")
    named = {*required_names(output), *(members if isinstance(members, dict) else ())}
    return not named.isdisjoint(NAMES) or (isinstance(properties, dict) and "skill_id" in properties)


def announcement_findings(facts: Announced) -> list[Finding]:
    """Return the lines about an announcement; one alone where there is none that can be used."""
    spec = facts.spec
    if spec is None:
        reason = facts.refused or "no process announces it"
        remedy = "docs/tools.md#when-a-tool-does-not-appear says what to do"
        return lines_of([("announced", "failed", True, reason, remedy)])
    output: list[Check] = []
    if spec.output_schema is None:
        missing = "there is none, so plans cannot name what the tool gives"
        status: Literal["warning", "failed"] = "failed" if facts.wants_standard else "warning"
        output = [("output_schema", status, True, missing, RESPOND if facts.wants_standard else "declare one")]
    else:
        output += _output(spec.name, spec.output_schema, is_standard=facts.wants_standard)
    return lines_of([*_identity(facts, spec), *output, *_use(facts, spec)])


def _identity(facts: Announced, spec: ToolSpec) -> Iterator[Check]:
    version = f", version {facts.version}" if facts.version else ""
    several = f"by {facts.instances} instance{'s' if facts.instances > 1 else ''}"
    served = several if facts.instances else "in the tools file"
    differ = f"its instances announce {len(facts.digests)} specifications; {facts.digest}{version} is checked"
    yield "announced", "warning", len(facts.digests) > 1, differ, "finish the rollout"
    yield "announced", "ok", True, f"{served}{version}, digest {facts.digest}", ""
    accept = f"runwire tools accept {spec.name} {facts.digest}"
    yield "accepted", "ok", facts.is_offered, "it is offered", ""
    yield "accepted", "failed", True, facts.refused or "this specification is not offered", accept
    is_described = bool(spec.description.strip())
    yield "description", "ok", is_described, f"{len(spec.description)} characters", ""
    missing = "there is none, and a model chooses tools by it"
    yield "description", "failed", True, missing, "say what the tool does"
    properties = spec.input_schema.get("properties")
    members = properties if isinstance(properties, dict) else {}
    bare = [name for name, each in members.items() if not (isinstance(each, dict) and each.get("description"))]
    undescribed = f"arguments without a description: {listed(bare)}"
    yield "input_schema", "warning", bare, undescribed, "describe each argument"
    yield "input_schema", "ok", True, f"it can be used; {len(members)} arguments, all described", ""
    what, is_text = "argument skill_id", "string" in (_types(spec.input_schema, "skill_id") or ())
    yield what, "ok", "skill_id" not in members, "there is no such argument: right for a tool without skills", ""
    yield what, "ok", is_text, "the argument is a text", ""
    yield what, "warning", True, "the argument is no text", "give it the type string"


def _output(tool: str, schema: dict[str, Any], *, is_standard: bool) -> Iterator[Check]:
    if is_standard:
        yield from _standard_output(schema)
    else:
        ordinary = "an ordinary result; --standard judges it as a canonical one"
        yield "output_schema", "ok", True, ordinary, ""
    paths = [each.path for each in template_paths(schema) if each.path]
    shown = ", ".join(f"$0.output.{path}" for path in paths[:_SHOWN_PATHS])
    yield "templates", "ok", paths, f"paths: {len(paths)}, such as {shown}; runwire tools {tool} lists them", ""
    yield "templates", "ok", not is_standard, "plans can name the whole of its output, and nothing in it", ""
    yield "templates", "failed", True, "plans can name nothing in its output", "declare its members under properties"


def _standard_output(schema: dict[str, Any]) -> Iterator[Check]:
    required = required_names(schema)
    optional = [name for name in NAMES if name not in required]
    yield "output_schema", "failed", optional, f"it does not require {listed(optional)}", RESPOND
    yield "output_schema", "ok", True, f"it requires {listed(NAMES)}", ""
    for name, wanted in (("artifact_id", "string"), ("artifact", "object"), ("_metadata", "object")):
        what, types, mend = f"output {name}", _types(schema, name), f"give it the type {wanted}"
        found = types or frozenset()
        is_wanted = wanted in found and found <= {wanted, "null"}
        yield what, "failed", types is None, "the output schema does not declare it", RESPOND
        yield what, "ok", is_wanted, f"its type is {wanted}", ""
        yield what, "warning", types == ANY, "the output schema says nothing of its type", mend
        other = f"its type is {' or '.join(sorted(found))}, not {wanted}"
        yield what, "warning" if name == "artifact" else "failed", True, other, mend
    undeclared = [name for name in METADATA if _types(schema, "_metadata", name) is None]
    what, missing = "output _metadata.*", f"its schema does not declare {listed(undeclared)}"
    yield what, "warning", undeclared, missing, "declare all six members"
    yield what, "ok", True, f"plans can name {listed(METADATA)}", ""


def _use(facts: Announced, spec: ToolSpec) -> Iterator[Check]:
    untold = "the output schema does not tell what kind of artifact it is"
    remedy = "set x-artifact-type in the schema of artifact, such as text or table"
    yield "output type", "warning", facts.artifact_type is None and facts.wants_standard, untold, remedy
    is_declared = facts.artifact_type is not None
    yield "output type", "ok", is_declared, f"the output schema tells that it is a {facts.artifact_type}", ""
    approval = ", requires_approval" if spec.requires_approval else ""
    flags = f"idempotent: {str(spec.idempotent).lower()}, side_effects: {spec.side_effects}{approval}"
    is_vague = spec.side_effects == "none" and not spec.idempotent
    vague = f"{flags}: is nothing said, or may a call without side effects not be repeated?"
    remedy = "say idempotent if a call may be repeated, and side_effects if it changes something"
    yield "flags", "warning", is_vague, vague, remedy
    yield "flags", "ok", True, flags, ""
    silence = f"{spec.timeout_s:g} s of silence"
    if spec.heartbeat_s is not None:
        yield "timeout", "ok", True, f"{silence}, a heartbeat every {spec.heartbeat_s:g} s", ""
    late = f"it may be silent for {spec.timeout_s:g} s, so its death is noticed as late"
    remedy = "send heartbeats, and announce heartbeat_s"
    yield "timeout", "warning", spec.timeout_s > _LONG_CALL_S, late, remedy
    yield "timeout", "ok", True, silence, ""


def _types(schema: Mapping[str, Any], *path: str) -> frozenset[str] | None:
    """Return the types of what a path leads to; None where it is not declared; any for what is too complex."""
    try:
        fields = Fields(schema, Steps())
        found = fields.find(path)
        return None if isinstance(found, Missing) else fields.types(found)
    except TooManySteps:
        return ANY


def required_names(schema: Mapping[str, Any]) -> set[str]:
    """Return the members that a schema requires; none for what is too complex."""
    try:
        return Fields(schema, Steps()).required()
    except TooManySteps:
        return set()
