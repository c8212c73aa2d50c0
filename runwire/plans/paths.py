"""The paths that templates may name in the output of a tool, for people.

Rule 1: what a check accepts is shown, in the order of declaration; names with a dot or blanks cannot be named.
Rule 2: a schema that contains itself is shown once, and marked where it comes again.
Rule 3: the list is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runwire.plans.json_schema.folding import Steps, TooManySteps

from .json_schema.fields import Fields, Part, Presence
from .json_schema.folding import Schema
from .json_schema.json_types import ANY
from .templates import Template, parse_template

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
