"""What the announcement of a tool says, against the form of canonical results. Pure: what was found comes in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.tools.checks import Finding
from contracts.tools.messages import ToolSpec
from runwire.plans import template_paths
from runwire.plans.json_schema.fields import Fields, Missing
from runwire.plans.json_schema.json_types import ANY
from runwire.plans.json_schema.steps import Steps, TooManySteps

from .findings import METADATA, NAMES, RESPOND, Check, lines_of, listed

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
        output = [("output_schema", "failed", True, missing, RESPOND)]
    else:
        output += _output(spec.name, spec.output_schema)
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


def _output(tool: str, schema: dict[str, Any]) -> Iterator[Check]:
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
    paths = [each.path for each in template_paths(schema) if each.path]
    shown = ", ".join(f"$0.output.{path}" for path in paths[:_SHOWN_PATHS])
    yield "templates", "ok", paths, f"paths: {len(paths)}, such as {shown}; runwire tools {tool} lists them", ""
    yield "templates", "failed", True, "plans can name nothing in its output", "declare its members under properties"


def _use(facts: Announced, spec: ToolSpec) -> Iterator[Check]:
    untold = "the output schema does not tell what kind of artifact it is"
    remedy = "set x-artifact-type in the schema of artifact, such as text or table"
    yield "output type", "warning", facts.artifact_type is None, untold, remedy
    yield "output type", "ok", True, f"the output schema tells that it is a {facts.artifact_type}", ""
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
