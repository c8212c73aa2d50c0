"""Evaluates a JSON Schema together with the schemas that apply to the same value: `$ref`, `allOf`, `anyOf`, `oneOf`.

Read in this way are the JSON types that a schema allows (`ANY`: it does not say) and the fields that it declares
(`schema_fields`). `Patterns` matches names by the regular expressions of `patternProperties`.

Rule 1: only `#` and `#/a/json/pointer` are followed. Nothing is fetched; a reference that leads elsewhere or nowhere
makes its place unknown.
Rule 2: nothing recurses, so no schema is too deep. A schema that contains itself contributes nothing a second time.
Rule 3: each schema that is visited is a step. The steps of a check are limited (`Steps`), so no schema and no plan can
make it long.
Rule 4: pydantic matches with Rust's `regex` in linear time, which never backtracks; Python's `re` may take exponential
time. A pattern still takes time and memory by its size, and each match by the size of both: both are counted in steps.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pydantic_core import SchemaError, SchemaValidator, core_schema

from runwire.plans.schema_graph import schema_at, steps_of

MAX_STEPS = 100_000
"""Subschemas and path segments that one check looks at: about 0.2 s."""


class TooManySteps(Exception):
    """The check would take too much work."""


class Steps:
    """The steps that a check may still take."""

    def __init__(self) -> None:
        self.left = MAX_STEPS

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


@dataclass(slots=True, eq=False)
class Parts:
    """The schemas that apply to the same value as one schema does."""

    together: list[Schema] = field(default_factory=list)
    unions: list[list[Schema]] = field(default_factory=list)
    unknown: bool = False
    """A reference could not be followed."""
    count: int = 0

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


Types = frozenset[str]
ANY: Types = frozenset({"any"})
NULL: Types = frozenset({"null"})
_NONE: Types = frozenset()
_KNOWN = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NUMBERS = frozenset({"integer", "number"})
_OBJECT_KEYWORDS = frozenset({"properties", "patternProperties", "additionalProperties"})
_ARRAY_KEYWORDS = frozenset({"items", "prefixItems"})


def types_of_itself(schema: Schema) -> Types:
    """Return the types that a schema allows, without those that it combines: as declared, of its values, by shape."""
    if not isinstance(schema, dict):
        return _NONE if schema is False else ANY
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    declared = _KNOWN.intersection(name for name in names if isinstance(name, str))
    if declared:
        return declared | NULL if schema.get("nullable") is True else declared
    if "const" in schema:
        return frozenset({type_of(schema["const"])})
    if isinstance(schema.get("enum"), list):
        return frozenset(map(type_of, schema["enum"]))
    shape = {"object"} if not _OBJECT_KEYWORDS.isdisjoint(schema) else set[str]()
    shape |= {"array"} if not _ARRAY_KEYWORDS.isdisjoint(schema) else set[str]()
    return frozenset(shape) or ANY


def values_of(schema: Schema) -> int:
    """Return how many values `types_of_itself` looks at."""
    if not isinstance(schema, dict):
        return 0
    return sum(len(said) for said in (schema.get("type"), schema.get("enum")) if isinstance(said, list))


def type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for name, kinds in (("string", str), ("integer", int), ("number", float), ("object", dict)):
        if isinstance(value, kinds):
            return name
    return "array"


class TypesReading(Reading[Types]):
    """Reads the types of a schema and all that applies to the same value. `own`: returns those of one schema."""

    unknown = ANY

    def __init__(self, own: Callable[[Schema], Types]) -> None:
        self._own = own

    def of_itself(self, schema: Schema) -> Types:
        """Read the types of one schema."""
        return self._own(schema)

    def of_all(self, schema: Schema, parts: list[Types]) -> Types:
        """Keep the types that every part allows; `nullable` adds null."""
        found = ANY
        for part in parts:
            if ANY in (found, part):
                found = part if found == ANY else found
                continue
            narrowed = "integer" in found | part and not _NUMBERS.isdisjoint(found) and not _NUMBERS.isdisjoint(part)
            found = (found & part) | ({"integer"} if narrowed else set())
        nullable = isinstance(schema, dict) and schema.get("nullable") is True and found != ANY
        return found | NULL if nullable else found

    def of_any(self, parts: list[Types]) -> Types:
        """Keep the types that some part allows."""
        return ANY if ANY in parts else frozenset[str]().union(*parts)


MAX_PATTERNS = 100
"""The patterns of one schema that the services accept."""
MAX_PATTERN_CHARACTERS = 1_000
MAX_COMPILING_STEPS = 50_000
"""What would take more is not compiled."""
_COMPILING = 100
_OF_A_CLASS = 300
"""Steps for compiling a class of characters: a table of Unicode."""
_OF_MANY = 2
"""Steps for compiling what takes almost every character."""
_STATES_PER_STEP = 250
"""Parts of a pattern that are compared with one character in the time of a step."""
_CLASSES = re.compile(r"\\[dDsSwWpP]")
_MANY = re.compile(r"[.]|\[\^")
_PART = re.compile(r"\\.|\[(?>\\.|[^\]\\])*+\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)
_COUNT_DIGITS = 6
"""Larger counts are all the same: no pattern may have them."""


def pattern_size(pattern: str, most: int, weigh: Callable[[str], int] = lambda _: 1) -> int:
    """Return the size of a regular expression with its counts, such as `{3,90}`, written out.

    `weigh` returns the size of a character, escape or class. A group counts as at most `most`.
    """
    totals, lasts = [0], [0]
    for part in _PART.finditer(pattern):
        text, least, greatest = part[0], part[1], part[2]
        if least is not None:
            times = max(int(least[:_COUNT_DIGITS]), int((greatest or "0")[:_COUNT_DIGITS]))
            added = max(0, min(lasts[-1] * times, most) - lasts[-1])
            totals[-1] += added
            lasts[-1] += added
        elif text == "(":
            totals.append(0)
            lasts.append(0)
        elif text == ")" and len(totals) > 1:
            group = totals.pop()
            lasts.pop()
            totals[-1] += group
            lasts[-1] = group
        else:
            lasts[-1] = weigh(text)
            totals[-1] += lasts[-1]
    return sum(totals)


def matcher(pattern: str) -> Callable[[str], bool] | None:
    """Return a test of names in linear time; None: the pattern has none."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except (SchemaError, ValueError):
        return None


class Patterns:
    """The patterns of one check, each compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compiled: dict[str, tuple[Callable[[str], bool] | None, int]] = {}
        """Pattern -> its test of names, and its parts."""

    def match(self, pattern: str, name: str) -> bool | None:
        """Whether a pattern is found in a name; None: it cannot be matched in linear time, or is too large."""
        self._steps.take()
        if pattern not in self._compiled:
            self._compiled[pattern] = self._compile(pattern)
        matches, size = self._compiled[pattern]
        if matches is None:
            return None
        self._steps.take(size * len(name) // _STATES_PER_STEP)
        return matches(name)

    def _compile(self, pattern: str) -> tuple[Callable[[str], bool] | None, int]:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            return None, 0
        steps = _COMPILING + pattern_size(
            pattern,
            MAX_COMPILING_STEPS,
            lambda part: len(part) + _OF_A_CLASS * len(_CLASSES.findall(part)) + _OF_MANY * len(_MANY.findall(part)),
        )
        if steps > MAX_COMPILING_STEPS:
            return None, 0
        self._steps.take(steps)
        return matcher(pattern), pattern_size(pattern, MAX_COMPILING_STEPS)
