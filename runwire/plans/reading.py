"""Reads what a model gave as a plan, and reports everything that can be said of one without running it.

Rule 1: what a plan does not need may be missing, and what it does not know is left alone.
Rule 2: the errors of all calls are collected, the first 100 of them. No value makes it raise.
Rule 3: of the paths that templates may name, people see what a check accepts, in the order of declaration; names with a
dot or blanks cannot be named. A schema that contains itself is shown once, and marked where it comes again. The list is
bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import Any

from contracts.runs.decisions import DIRECT_RESPONSE, TOOL_CALLS, PlainError, Plan, PlanCall, PlanError, PlanReport
from contracts.tools.messages import ToolSpec
from contracts.wire.base import MAX_ARGUMENT_BYTES, MAX_HTTP_INLINE_BYTES
from runwire.plans.checking import DEFAULT_BOUNDS, MAX_ERRORS, Faults, PlanBounds, check_plan
from runwire.plans.schema_fields import Fields, Part, Presence
from runwire.plans.schema_folding import ANY, Schema, Steps, TooManySteps
from runwire.plans.templates import ArgumentsTooLarge, MissingOutputField, Template, json_size, parse_template, resolve
from runwire.plans.texts import error_line, warning_line


@dataclass(frozen=True, slots=True)
class DirectResponse:
    """The model answers without tools."""

    content: str
    """As the model wrote it."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The other members of the object, unread."""


def read_plan(value: Any) -> DirectResponse | Plan | list[PlanError]:
    """Return the answer or the plan that a model gave as an object, or what is wrong with it, at most 100 errors."""
    if not isinstance(value, Mapping):
        return [_error("unknown_type")]
    kind = value.get("type")
    if kind == DIRECT_RESPONSE:
        content = value.get("content")
        others = {key: each for key, each in value.items() if key not in {"type", "content"}}
        return DirectResponse(content, others) if isinstance(content, str) else [_error("content_missing")]
    if kind != TOOL_CALLS:
        return [_error("unknown_type")]
    calls = value.get("calls")
    if not isinstance(calls, list):
        return [_error("calls_missing")]
    if not calls:
        return [_error("empty_plan")]
    if errors := list(islice(chain.from_iterable(map(_wrong, count(), calls)), MAX_ERRORS)):
        return errors
    reasoning = value.get("reasoning")
    return Plan(
        reasoning=reasoning if isinstance(reasoning, str) else "",
        calls=[PlanCall(tool_name=call["tool_name"], arguments=call.get("arguments", {})) for call in calls],
    )


def _wrong(index: int, call: Any) -> Iterator[PlanError]:
    members = call if isinstance(call, Mapping) else {}
    name = members.get("tool_name")
    if not isinstance(name, str) or not name:
        yield _error("tool_name_missing", index)
    if not isinstance(members.get("arguments", {}), dict):
        yield _error("arguments_not_object", index)


def _error(code: str, index: int | None = None) -> PlanError:
    return PlanError(tool_index=index, error=PlainError.model_validate({"type": code}))


_NO_TYPE = 'The plan has no type. A model has to give it: "type": "tool_calls"'


def report(
    plan: Any,
    tools: Mapping[str, ToolSpec],
    bounds: PlanBounds = DEFAULT_BOUNDS,
    outputs: Sequence[Any] | None = None,
    faults: Faults | None = None,
) -> PlanReport:
    """Read and check a plan, and resolve its templates where there are outputs.

    Args:
        plan: what a model gives, `{"type": …}`; of `{"calls": […]}` the type may be missing.
        tools: those that the run may use, by name.
        bounds: how large the plan may be.
        outputs: results of its calls, in order; None: nothing is resolved.
        faults: what checks literal arguments; None: only missing ones are found.
    """
    notes = []
    if isinstance(plan, Mapping) and "type" not in plan and "calls" in plan:
        plan = {"type": TOOL_CALLS, **plan}
        notes.append(_NO_TYPE)
    read = read_plan(plan)
    if isinstance(read, DirectResponse):
        return PlanReport(valid=True, kind=DIRECT_RESPONSE)
    if isinstance(read, list):
        return PlanReport(valid=False, kind="invalid", errors=read, lines=[error_line(error, []) for error in read])
    check = check_plan(read.calls, tools, bounds, faults)
    lines = [error_line(error, read.calls) for error in check.errors]
    if check.errors_left_out:
        lines.append(f"{check.errors_left_out} more errors are left out")
    lines += [warning_line(warning, read.calls) for warning in check.warnings]
    lines += notes if check.valid else []
    resolved = None if outputs is None or not check.valid else _resolved(read, outputs, lines)
    return PlanReport(
        valid=check.valid,
        kind=TOOL_CALLS,
        errors=check.errors,
        errors_left_out=check.errors_left_out,
        warnings=check.warnings,
        lines=lines,
        resolved=resolved,
    )


def _resolved(plan: Plan, outputs: Sequence[Any], lines: list[str]) -> list[dict[str, Any] | None]:
    """Return the arguments of each call; None, with a line that says why, for one that would fail."""
    found: list[dict[str, Any] | None] = []
    room = MAX_HTTP_INLINE_BYTES
    for index, call in enumerate(plan.calls):
        try:
            arguments = resolve(call.arguments, outputs[:index], max_bytes=min(room, MAX_ARGUMENT_BYTES))
        except (MissingOutputField, ArgumentsTooLarge) as error:
            lines.append(f"Call {index} would fail: {error}")
            found.append(None)
            continue
        # What the templates have added.
        room -= max(0, (json_size(arguments) or 0) - (json_size(call.arguments) or 0))
        found.append(arguments)
    return found


MAX_PATHS = 500
MAX_LEVELS = 32
NAME, NUMBER = "<name>", "<number>"


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """What a template may name after `$N.output.`."""

    path: str
    """Dotted; `<name>` is any name, `<number>` the number of an item. Empty: only the note counts."""
    types: tuple[str, ...]
    """JSON types, or `any`."""
    note: str = ""
    """`recursive`: what is inside is the same as further up. `not declared`: accepted without a check."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: tuple[str, ...]
    schema: Schema
    declared: bool
    above: frozenset[int]
    """Identities of the objects that contain it."""


def template_paths(schema: dict[str, Any] | None) -> list[TemplatePath]:
    """Return every path in the output of a tool, at most 500; None, no schema: there are none."""
    if schema is None:
        return []
    fields = Fields(schema, Steps())
    found: list[TemplatePath] = []
    try:
        for path in _walk(fields):
            if len(found) == MAX_PATHS:
                found.append(TemplatePath("", (), f"more than {MAX_PATHS} paths; the others are left out"))
                break
            found.append(path)
    except TooManySteps:
        found.append(TemplatePath("", (), "the schema is too complex; the other paths are left out"))
    return found


def _walk(fields: Fields) -> Iterator[TemplatePath]:
    stack = list(reversed(_inside(fields, _Entry((), fields.root, declared=True, above=frozenset()))))
    while stack:
        entry = stack.pop()
        types = tuple(sorted(fields.types(entry.schema)))
        recursive = not entry.above.isdisjoint(_objects(fields, entry.schema))
        note = "recursive" if recursive else "" if entry.declared else "not declared"
        yield TemplatePath(".".join(entry.path), types, note)
        if not recursive and len(entry.path) < MAX_LEVELS:
            stack += reversed(_inside(fields, entry))


def _inside(fields: Fields, entry: _Entry) -> list[_Entry]:
    """Return the parts of a value."""
    schema, above = entry.schema, entry.above | _objects(fields, entry.schema)
    parts: list[tuple[str, Schema, bool]] = [
        (name, fields.inside(schema, name), True)
        for name in fields.names(schema, MAX_PATHS + 1)
        if parse_template(f"$0.output.{name}") == Template(0, (name,))
    ]
    types = fields.types(schema)
    if types != ANY and "object" in types:
        found = fields.part(schema, Part.VALUES)
        if found.presence is Presence.DECLARED or (found.presence is not Presence.CLOSED and entry.path):
            parts.append((NAME, found.schema, found.presence is Presence.DECLARED))
    if types != ANY and "array" in types:
        found = fields.part(schema, Part.ITEMS)
        if found.presence is not Presence.CLOSED:
            parts.append((NUMBER, found.schema, found.presence is Presence.DECLARED))
    return [_Entry((*entry.path, name), part, declared, above) for name, part, declared in parts]


def _objects(fields: Fields, schema: Schema) -> frozenset[int]:
    return frozenset(map(id, fields.properties(schema)))
