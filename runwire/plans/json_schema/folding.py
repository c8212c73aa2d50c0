"""Evaluates a JSON Schema together with the schemas that apply to the same value: `$ref`, `allOf`, `anyOf`, `oneOf`.

Rule 1: only `#` and `#/a/json/pointer` are followed. Nothing is fetched; a reference that leads elsewhere or nowhere
makes its place unknown.
Rule 2: nothing recurses, so no schema is too deep. A schema that contains itself contributes nothing a second time.
Rule 3: each schema that is visited is a step (`Steps`).

The work of one check is counted, so that no schema and no plan can make it long.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

from runwire.plans.json_schema.graph import schema_at, steps_of

MAX_STEPS = 100_000
"""Subschemas and path segments that one check looks at: about 0.2 s."""


class TooManySteps(Exception):
    """The check would take too much work."""


class Steps:
    """The steps that a check may still take."""

    def __init__(self, limit: int = MAX_STEPS) -> None:
        self.limit = limit
        self.left = limit

    def take(self, count: int = 1) -> None:
        """Count steps. Raises TooManySteps beyond the limit."""
        self.left -= count
        if self.left < 0:
            raise TooManySteps


T = TypeVar("T")
Schema = Any
"""A JSON Schema: an object, true or false. Any other value counts as true."""

_MAX_PLAIN_REFERENCES = 100
_UNIONS = ("anyOf", "oneOf")
_IN_PLACE = frozenset({"$ref", "allOf", *_UNIONS})


class Reading(Protocol[T]):
    """What is read of a schema, and how it is put together."""

    unknown: T
    """What is read of a reference that cannot be followed."""

    def of_itself(self, schema: Schema) -> T:
        """Read a schema without those that it combines."""

    def of_all(self, schema: Schema, parts: list[T]) -> T:
        """Put together what applies at once: a schema itself (the first part), and those that it combines."""

    def of_any(self, parts: list[T]) -> T:
        """Put together alternatives."""


class Parts:
    """The schemas that apply to the same value as one schema does."""

    __slots__ = ("count", "together", "unions", "unknown")

    def __init__(self) -> None:
        self.together: list[Schema] = []
        self.unions: list[list[Schema]] = []
        self.unknown = False
        """A reference could not be followed."""
        self.count = 0

    def __iter__(self) -> Iterator[Schema]:
        yield from self.together
        for union in self.unions:
            yield from union


_NO_PARTS = Parts()


class Document:
    """A whole schema, against which references are resolved."""

    def __init__(self, root: Schema, steps: Steps) -> None:
        self.root = root
        self.steps = steps
        self._targets: dict[str, Schema | None] = {}
        self._parts: dict[int, Parts] = {}

    def fold(self, schema: Schema, reading: Reading[T]) -> T:
        """Read a schema and all that applies to the same value. Raises TooManySteps."""
        if not _combines(schema):
            self.steps.take()
            return reading.of_all(schema, [reading.of_itself(schema)])
        done: dict[int, T] = {}
        begun: set[int] = set()
        stack = [schema]
        while stack:
            place = stack[-1]
            key = id(place)
            if key in done:
                stack.pop()
                continue
            parts = self.parts(place)
            if key not in begun:
                begun.add(key)
                inside = [part for part in parts if id(part) not in begun]
                self.steps.take(1 + parts.count)
                stack.extend(reversed(inside))
                continue
            stack.pop()
            done[key] = _combined(place, parts, reading, done)
        return done[id(schema)]

    def parts(self, schema: Schema) -> Parts:
        """Return what a schema combines, each reference replaced by what it leads to."""
        if not _combines(schema):
            return _NO_PARTS
        known = self._parts.get(id(schema))
        if known is None:
            known = self._parts[id(schema)] = self._read_parts(schema)
        return known

    def _read_parts(self, schema: Mapping[str, Any]) -> Parts:
        parts = Parts()
        if "$ref" in schema:
            target = self.target(schema["$ref"])
            parts.unknown = target is None
            parts.together += [] if target is None else [target]
        parts.together += map(self.plain, _list(schema.get("allOf")))
        parts.unions = [
            list(map(self.plain, members)) for keyword in _UNIONS if (members := _list(schema.get(keyword)))
        ]
        parts.count = len(parts.together) + sum(map(len, parts.unions))
        return parts

    def plain(self, schema: Schema) -> Schema:
        """Follow a schema that is nothing but a reference to what it leads to, at most 100 references far."""
        for _ in range(_MAX_PLAIN_REFERENCES):
            if not isinstance(schema, dict) or len(schema) != 1 or "$ref" not in schema:
                return schema
            self.steps.take()
            target = self.target(schema["$ref"])
            if target is None:
                return schema
            schema = target
        return schema

    def target(self, reference: Any) -> Schema | None:
        """Return the schema to which a reference leads in this document; None: it leads nowhere."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        if reference not in self._targets:
            steps = steps_of(reference)
            self.steps.take(len(steps))
            self._targets[reference] = schema_at(self.root, steps)
        return self._targets[reference]


def _combines(schema: Schema) -> bool:
    return isinstance(schema, dict) and not _IN_PLACE.isdisjoint(schema)


def _combined(schema: Schema, parts: Parts, reading: Reading[T], done: Mapping[int, T]) -> T:
    """Put together what was read of the parts; those that contain this schema are not read yet, and left out."""
    found = [reading.of_itself(schema)]
    if parts.unknown:
        found.append(reading.unknown)
    found += [done[id(part)] for part in parts.together if id(part) in done]
    for union in parts.unions:
        members = [done[id(part)] for part in union if id(part) in done]
        if members:
            found.append(reading.of_any(members))
    return reading.of_all(schema, found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
