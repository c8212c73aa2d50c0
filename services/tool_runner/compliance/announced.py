"""What the announcement of a tool says, against the standard form. Pure: what was found comes in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.tools.checks import Finding
from contracts.tools.messages import ToolSpec
from runwire.plans import template_paths
from runwire.plans.json_schema.fields import Fields, Missing
from runwire.plans.json_schema.json_types import ANY
from runwire.plans.json_schema.steps import Steps, TooManySteps

from .findings import METADATA, NAMES, RESPOND, failed, listed, ok, warning

_SHOWN_PATHS = 5
_LONG_CALL_S = 60.0
"""The death of a tool that may be silent for longer should show in its heartbeats."""
_WANTED_TYPES = {"artifact_id": "string", "artifact": "object", "_metadata": "object"}


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
        return [failed("announced", reason, "docs/tools.md#when-a-tool-does-not-appear says what to do")]
    return [
        *_identity(facts, spec),
        _description(spec),
        *_input(spec),
        *_output(spec),
        _artifact_type(facts.artifact_type),
        _flags(spec),
        _timeout(spec),
    ]


def _identity(facts: Announced, spec: ToolSpec) -> Iterator[Finding]:
    version = f", version {facts.version}" if facts.version else ""
    instances = f"by {facts.instances} instance{'s' if facts.instances > 1 else ''}"
    served = instances if facts.instances else "in the tools file"
    if len(facts.digests) > 1:
        yield warning(
            "announced",
            f"its instances announce {len(facts.digests)} specifications; {facts.digest}{version} is checked",
            "finish the rollout",
        )
    else:
        yield ok("announced", f"{served}{version}, digest {facts.digest}")
    if facts.is_offered:
        yield ok("accepted", "it is offered")
    else:
        accept = f"runwire tools accept {spec.name} {facts.digest}"
        yield failed("accepted", facts.refused or "this specification is not offered", accept)


def _description(spec: ToolSpec) -> Finding:
    if not spec.description.strip():
        return failed("description", "there is none, and a model chooses tools by it", "say what the tool does")
    return ok("description", f"{len(spec.description)} characters")


def _input(spec: ToolSpec) -> Iterator[Finding]:
    properties = spec.input_schema.get("properties")
    members = properties if isinstance(properties, dict) else {}
    bare = [name for name, each in members.items() if not (isinstance(each, dict) and each.get("description"))]
    if bare:
        yield warning("input_schema", f"arguments without a description: {listed(bare)}", "describe each argument")
    else:
        yield ok("input_schema", f"it can be used; {len(members)} arguments, all described")
    if "skill_id" not in members:
        yield ok("argument skill_id", "there is no such argument: right for a tool without skills")
    elif "string" in (_types(Fields(spec.input_schema, Steps()), "skill_id") or ()):
        yield ok("argument skill_id", "the argument is a text")
    else:
        yield warning("argument skill_id", "the argument is no text", "give it the type string")


def _output(spec: ToolSpec) -> Iterator[Finding]:
    schema = spec.output_schema
    if schema is None:
        yield failed("output_schema", "there is none, so plans cannot name what the tool gives", RESPOND)
        return
    required, fields = required_names(schema), Fields(schema, Steps())
    optional = [name for name in NAMES if name not in required]
    if optional:
        yield failed("output_schema", f"it does not require {listed(optional)}", RESPOND)
    else:
        yield ok("output_schema", f"it requires {listed(list(NAMES))}")
    yield from (_member(fields, name, wanted) for name, wanted in _WANTED_TYPES.items())
    yield _metadata(fields)
    paths = [each.path for each in template_paths(schema) if each.path]
    shown = ", ".join(f"$0.output.{path}" for path in paths[:_SHOWN_PATHS])
    if paths:
        yield ok("templates", f"paths: {len(paths)}, such as {shown}; runwire tools {spec.name} lists them")
    else:
        yield failed("templates", "plans can name nothing in its output", "declare its members under properties")


def _member(fields: Fields, name: str, wanted: str) -> Finding:
    """The type of a member of the output."""
    what = f"output {name}"
    types = _types(fields, name)
    if types is None:
        return failed(what, "the output schema does not declare it", RESPOND)
    if wanted in types and types <= {wanted, "null"}:
        return ok(what, f"its type is {wanted}")
    if types == ANY:
        return warning(what, "the output schema says nothing of its type", f"give it the type {wanted}")
    say = warning if name == "artifact" else failed
    return say(what, f"its type is {' or '.join(sorted(types))}, not {wanted}", f"give it the type {wanted}")


def _metadata(fields: Fields) -> Finding:
    what = "output _metadata.*"
    missing = [name for name in METADATA if _types(fields, "_metadata", name) is None]
    if missing:
        return warning(what, f"its schema does not declare {listed(missing)}", "declare all six members")
    return ok(what, f"plans can name {listed(list(METADATA))}")


def _types(fields: Fields, *path: str) -> frozenset[str] | None:
    """Return the types of what a path leads to; None where it is not declared; any for what is too complex."""
    try:
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


def _artifact_type(found: str | None) -> Finding:
    if found is None:
        return warning(
            "output type",
            "the output schema does not tell what kind of artifact it is",
            "set x-artifact-type in the schema of artifact, such as text or table",
        )
    return ok("output type", f"the output schema tells that it is a {found}")


def _flags(spec: ToolSpec) -> Finding:
    flags = f"idempotent: {str(spec.idempotent).lower()}, side_effects: {spec.side_effects}"
    if spec.requires_approval:
        flags += ", requires_approval"
    if spec.side_effects == "none" and not spec.idempotent:
        return warning(
            "flags",
            f"{flags}: is nothing said, or may a call without side effects not be repeated?",
            "say idempotent if a call may be repeated, and side_effects if it changes something",
        )
    return ok("flags", flags)


def _timeout(spec: ToolSpec) -> Finding:
    if spec.heartbeat_s is not None:
        return ok("timeout", f"{spec.timeout_s:g} s of silence, a heartbeat every {spec.heartbeat_s:g} s")
    if spec.timeout_s > _LONG_CALL_S:
        silence = f"it may be silent for {spec.timeout_s:g} s, so its death is noticed as late"
        return warning("timeout", silence, "send heartbeats, and announce heartbeat_s")
    return ok("timeout", f"{spec.timeout_s:g} s of silence")
