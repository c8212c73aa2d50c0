"""Which calls need a person's approval, and what an approval is about: the digest of one call.

Planner and tool_runner use the same functions, so a fault in one of them alone does not let a call through.

Rule 1: the digest is SHA-256 over the canonical JSON of tenant, run, call, tool, specification, arguments and revision.
Rule 2: what cannot be decided counts against the call. A rule whose schema cannot be checked against the arguments
matches if it asks for approval, and does not if it waives it. So it is with arguments that hold a reference: the tool
receives the artifact's value in its place, which the schema was not checked against.
Rule 3: a rule that waives an approval is proven by what it checks. JSON Schema limits only what is there, and only
values of the limit's type. So in such a rule each named argument is required and has a type.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from contracts.runs.pauses import ApprovalRule
from contracts.tools.messages import CallRequested, ToolSpec
from runwire.plans.schema_graph import Subschema, read_graph
from services.shared.json_schema.checks import InvalidSchema, check_schema, complaints
from services.shared.redaction.json_values import canonical_json
from services.shared.redaction.stored_values import holds_reference
from services.shared.tools.builtin import BUILT_IN

EVERY_TOOL = "*"
_UNPROVEN = frozenset({"not", "if", "patternProperties", "dependentSchemas", "propertyNames"})
"""Keywords that a waiving rule must not have: what they limit may be absent or of another type."""
_LIMITS = frozenset(
    ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength", "minLength", "pattern")
) | {"maxItems", "minItems", "uniqueItems", "items", "prefixItems", "contains"}
"""Keywords that pass every value of another type."""
_TYPING = frozenset({"type", "const", "enum"})


def check_rules(rules: Sequence[ApprovalRule]) -> None:
    """Raise ValueError, which names the rule, if rules of the agents file cannot be used."""
    names = [rule.name for rule in rules]
    for rule in rules:
        if names.count(rule.name) > 1:
            raise ValueError(f"two approval rules have the name {rule.name!r}")
        if EVERY_TOOL in rule.tools and len(rule.tools) > 1:
            raise ValueError(f"approval rule {rule.name!r}: `*` stands for every tool, so it must be alone in `tools`")
        try:
            check_schema(rule.arguments or {})
        except InvalidSchema as error:
            raise ValueError(f"approval rule {rule.name!r}: `arguments` is no usable JSON Schema: {error}") from error
        if rule.ask == "never" and rule.arguments is not None and (gap := _gap(rule.arguments)) is not None:
            raise ValueError(f"approval rule {rule.name!r} waives approvals that its `arguments` do not prove: {gap}")


def _gap(schema: dict[str, Any]) -> str | None:
    """Return how a call passes the schema of a waiving rule unlimited, as a sentence that mends it; None: it does not.

    A schema that is proven in another way is refused too: it can always be written in this one.
    """
    if not complaints({}, schema):
        return "a call without arguments passes; name each argument in `required`, or leave out `arguments`"
    for node in (each.schema for each in read_graph(schema, Subschema) if isinstance(each.schema, dict)):
        if found := sorted(_UNPROVEN & node.keys()):
            return f"`{found[0]}` proves nothing; say what is allowed, with `properties` and `required`"
        if (found := sorted(_LIMITS & node.keys())) and not _TYPING & node.keys():
            return f"`{found[0]}` limits no other type; add the `type`"
        for name, limits in node.get("properties", {}).items():
            if name not in node.get("required", ()):
                return f"a call without `{name}` passes, with the tool's default; add `{name}` to `required`"
            if isinstance(limits, dict) and not _TYPING & limits.keys():
                return f"`{name}` of any type passes; give it a `type`"
    return None


def rules_for(rules: Iterable[ApprovalRule], tool: str) -> list[ApprovalRule]:
    """Return the rules that name a tool, in their order.

    No rule names a built-in tool: it reads what the model was given, and is not a tool of a service.
    """
    return [] if tool in BUILT_IN else [rule for rule in rules if rule.tools == [EVERY_TOOL] or tool in rule.tools]


def asking_rule(rules: Iterable[ApprovalRule], tool: str, arguments: dict[str, Any]) -> ApprovalRule | None:
    """Return the rule that asks for an approval of this call: the first one that matches, unless it waives it."""
    for rule in rules_for(rules, tool):
        if _matches(rule, arguments):
            return None if rule.ask == "never" else rule
    return None


def _matches(rule: ApprovalRule, arguments: dict[str, Any]) -> bool:
    if rule.arguments is None:
        return True
    if holds_reference(arguments):
        return rule.ask != "never"
    try:
        return not complaints(arguments, rule.arguments, masked=True)
    except ValueError:
        return rule.ask != "never"


def is_allowed(call: CallRequested, spec: ToolSpec) -> bool:
    """Whether this call may be executed: it needs no approval, or bears one for exactly this call."""
    if not spec.requires_approval and asking_rule(call.approval_rules, call.tool, call.args) is None:
        return True
    if call.approval is None:
        return False
    digest = call_digest(
        call.tenant, call.run_id, call.call_id, call.tool, call.spec, call.args, call.approval.revision
    )
    return digest == call.approval.digest


def call_digest(
    tenant: str, run: str, call_id: str, tool: str, spec: str, arguments: dict[str, Any], revision: int = 1
) -> str:
    """Return what an approval of this call is about: 64 hexadecimal digits. `spec`: digest of the specification.

    Raises ValueError for arguments that are no JSON.
    """
    call = {"tenant": tenant, "run": run, "call_id": call_id, "tool": tool, "spec": spec}
    return _digest({**call, "arguments": arguments, "revision": revision})


def pause_digest(tenant: str, run: str, pause_id: str, schema: dict[str, Any] | None, revision: int = 1) -> str:
    """Return what an answer to a pause is about: 64 hexadecimal digits. `schema`: of the answer's input."""
    return _digest({"tenant": tenant, "run": run, "pause_id": pause_id, "schema": schema, "revision": revision})


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()
