"""Which fields a JSON Schema declares, and of which types (drafts 7 to 2020-12).

Rule 1: the first segment of a path has to be declared. Below it, what a schema leaves open is accepted as unknown.
Rule 2: an object with `properties` is closed, although JSON Schema allows more: a template names what is declared.
Rule 3: a field that one alternative (`anyOf`, `oneOf`) declares is declared. If another leaves it open, its type is
unknown.
Rule 4: everything is counted in steps and remembered by the identity of subschemas, which must not change meanwhile.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from runwire.plans import schema_folding as folding
from runwire.plans.schema_folding import ANY, NULL, Schema, Steps, Types
from runwire.plans.templates import is_index

MAX_NAMES = 100
"""Most names that an error lists."""
ITEM_LEVELS = 3
"""Levels of lists whose items `fit` compares."""
VALUES_A_STEP = 8
"""Values of an `enum` that are looked at in the time of one step."""


class Presence(IntEnum):
    """What a schema says of one property or item. Where several schemas apply, the greatest value counts."""

    CLOSED = 0
    """The schema forbids the property or item."""
    UNSAID = 1
    """The schema says nothing of the property or item, which may be there."""
    OPEN = 2
    """The schema says that undeclared properties are allowed."""
    FOREIGN = 3
    """A reference that leads out of the document might declare the property or item."""
    DECLARED = 4


class Found(NamedTuple):
    """What a schema says of a part, and the part's schema if it is declared."""

    presence: Presence
    schema: Schema = True


class Part(IntEnum):
    """A part that no path names."""

    ITEMS = 1
    """Every item of a list."""
    VALUES = 2
    """Every undeclared member of an object."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A path leads nowhere."""

    depth: int
    """Number of its segments up to and including the missing one."""
    names: list[str]
    """What is declared there."""


class Fields:
    """The fields of one schema, for one check."""

    def __init__(self, root: Schema, steps: Steps) -> None:
        self.root = root
        self._document = folding.Document(root, steps)
        self._steps = steps
        self._patterns = folding.Patterns(steps)
        self._found: dict[tuple[int, str | Part], Found] = {}
        self._types: dict[int, Types] = {}
        self._own_types: dict[int, Types] = {}
        self._reading = folding.TypesReading(self.own_types)
        self._merged: dict[tuple[str, tuple[int, ...]], Schema] = {}
        self._paths: dict[tuple[str, ...], Schema | Missing] = {}

    def find(self, path: tuple[str, ...]) -> Schema | Missing:
        """Return the schema of what a path leads to. Raises TooManySteps."""
        self._steps.take(2)
        if path not in self._paths:
            self._paths[path] = self._find(path)
        return self._paths[path]

    def _find(self, path: tuple[str, ...]) -> Schema | Missing:
        schema = self.root
        for depth, segment in enumerate(path):
            found = self.part(schema, segment)
            least = Presence.UNSAID if depth else Presence.FOREIGN
            if found.presence < least:
                return Missing(depth + 1, self.names(schema))
            schema = found.schema
        return schema

    def inside(self, schema: Schema, segment: str) -> Schema:
        """Return the schema of a part; true if it is not declared. Raises TooManySteps."""
        return self.part(schema, segment).schema

    def part(self, schema: Schema, segment: str | Part) -> Found:
        """Return what a schema says of a part."""
        key = id(schema), segment
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._document.fold(schema, _PartReading(self, segment))
        else:
            self._steps.take()
        return found

    def types(self, schema: Schema) -> Types:
        """Return the JSON types of a schema."""
        found = self._types.get(id(schema))
        if found is None:
            found = self._types[id(schema)] = self._document.fold(schema, self._reading)
        return found

    def own_types(self, schema: Schema) -> Types:
        """Return the JSON types of a schema without those that it combines. Raises TooManySteps."""
        found = self._own_types.get(id(schema))
        if found is None:
            self._steps.take(folding.values_of(schema) // VALUES_A_STEP)
            found = self._own_types[id(schema)] = folding.types_of_itself(schema)
        return found

    def names(self, schema: Schema, limit: int = MAX_NAMES) -> list[str]:
        """Return the names of the members that a schema declares, in their order, at most `limit`."""
        found: dict[str, None] = {}
        for properties in self.properties(schema):
            for name, part in properties.items():
                self._steps.take()
                if part is not False:
                    found[name] = None
                if len(found) == limit:
                    return list(found)
        return list(found)

    def required(self) -> set[str]:
        """Return the members that the schema requires, by itself, by a reference or by `allOf`. Raises TooManySteps."""
        found: set[str] = set()
        seen: set[int] = set()
        stack = [self.root]
        while stack:
            place = stack.pop()
            if isinstance(place, dict) and id(place) not in seen:
                seen.add(id(place))
                self._steps.take()
                required = place.get("required")
                found |= {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
                stack += self._document.parts(place).together
        return found

    def properties(self, schema: Schema) -> Iterator[Mapping[str, Schema]]:
        """Yield the `properties` of a schema and of all that applies to the same value, in their order."""
        seen: set[int] = set()
        stack = [(schema, False)]
        while stack:
            place, own = stack.pop()
            if not isinstance(place, dict):
                continue
            if own:
                yield place["properties"]
            elif id(place) not in seen:
                seen.add(id(place))
                self._steps.take()
                stack += reversed(list(self._in_order(place)))

    def _in_order(self, schema: Mapping[str, Any]) -> Iterator[tuple[Schema, bool]]:
        """Yield what a schema combines, in the order of its keywords; True: its own properties."""
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict) and "object" in self.own_types(schema):
                yield schema, True
            elif keyword == "$ref":
                yield self._document.target(value), False
            elif keyword in {"allOf", "anyOf", "oneOf"} and isinstance(value, list):
                for part in value:
                    yield part, False

    def merged(self, keyword: str, schemas: Sequence[Schema]) -> Schema:
        """Return one schema for several that apply at once (`allOf`) or are alternatives (`anyOf`)."""
        distinct = {id(schema): schema for schema in map(self._document.plain, schemas)}
        parts = [schema for schema in distinct.values() if not is_open(schema)]
        self._steps.take(len(distinct))
        if not parts or (keyword == "anyOf" and len(parts) < len(distinct)):
            return True
        if len(parts) == 1:
            return parts[0]
        key = keyword, tuple(map(id, parts))
        return self._merged.setdefault(key, {keyword: parts})

    def of_object(self, schema: Mapping[str, Any], segment: str | Part) -> Found:
        """Return what an object's schema itself says of a member."""
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if segment is Part.ITEMS:
            return _CLOSED
        if isinstance(segment, str):
            if isinstance(properties, dict) and segment in properties:
                return _declared(properties[segment])
            matching = self._matching(schema, segment)
            if matching:
                return _declared(self.merged("allOf", matching))
        elif isinstance(patterns := schema.get("patternProperties"), dict) and patterns:
            return _declared(self.merged("anyOf", [*patterns.values(), *([others] if others is not None else [])]))
        if others is None and (unevaluated := schema.get("unevaluatedProperties")) is not None:
            others = unevaluated is not False
        if isinstance(others, dict):
            return _declared(others)
        if others is True:
            return Found(Presence.OPEN)
        return _CLOSED if others is False or isinstance(properties, dict) else _UNSAID

    def _matching(self, schema: Mapping[str, Any], name: str) -> list[Schema]:
        """Return the schemas of the patterns that match a name; true for one that cannot be matched."""
        patterns = schema.get("patternProperties")
        if not isinstance(patterns, dict):
            return []
        found = []
        for pattern, part in patterns.items():
            matches = self._patterns.match(pattern, name)
            if matches is not False:
                found.append(part if matches else True)
        return found

    def of_array(self, schema: Mapping[str, Any], segment: str | Part) -> Found:
        """Return what a list's schema itself says of an item."""
        items, prefix = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, list):  # drafts before 2020-12
            prefix, items = items, schema.get("additionalItems")
        prefix = prefix if isinstance(prefix, list) else []
        if segment is Part.ITEMS:
            if items is None and not prefix:
                return _UNSAID
            declared = [] if items is False else [True if items is None else items]
            return _declared(self.merged("anyOf", [*prefix, *declared]))
        if isinstance(segment, Part) or not (segment.isascii() and segment.isdecimal()):
            return _CLOSED
        number = int(segment) if is_index(segment) else len(prefix)
        return _declared(prefix[number] if number < len(prefix) else True if items is None else items)


def _declared(schema: Schema) -> Found:
    return _CLOSED if schema is False else Found(Presence.DECLARED, schema if isinstance(schema, dict) else True)


def is_open(schema: Schema) -> bool:
    """Whether a schema allows everything, as far as its own text shows."""
    return schema is not False and (not isinstance(schema, dict) or not schema)


_CLOSED, _UNSAID = Found(Presence.CLOSED), Found(Presence.UNSAID)
_SURE = frozenset({Presence.CLOSED, Presence.DECLARED})


class _PartReading(folding.Reading[Found]):
    """Reads what a schema says of one part."""

    unknown = Found(Presence.FOREIGN)

    def __init__(self, fields: Fields, segment: str | Part) -> None:
        self._fields = fields
        self._segment = segment

    def of_itself(self, schema: Schema) -> Found:
        types = self._fields.own_types(schema)
        if types == ANY:
            return _UNSAID
        found = [self._fields.of_object(schema, self._segment)] if "object" in types else []
        found += [self._fields.of_array(schema, self._segment)] if "array" in types else []
        return self.of_any(found) if found else _CLOSED

    def of_all(self, schema: Schema, parts: list[Found]) -> Found:  # noqa: ARG002, the reading of types needs it
        if len(parts) == 1:
            return parts[0]
        declared = [part.schema for part in parts if part.presence is Presence.DECLARED]
        if declared:
            return Found(Presence.DECLARED, self._fields.merged("allOf", declared))
        said = [part for part in parts if part.presence is not Presence.UNSAID]
        return max(said, default=_UNSAID, key=lambda part: part.presence)

    def of_any(self, parts: list[Found]) -> Found:
        if len(parts) == 1:
            return parts[0]
        declared = [part.schema for part in parts if part.presence is Presence.DECLARED]
        if not declared:
            return max(parts, key=lambda part: part.presence)
        others: list[Schema] = [True] if any(part.presence not in _SURE for part in parts) else []
        return Found(Presence.DECLARED, self._fields.merged("anyOf", [*declared, *others]))


class Fit(NamedTuple):
    """How the types of a source compare with those of a target."""

    source: Types
    target: Types
    fits: bool
    may_be_null: bool
    """The source may be null, or hold a null, where the target must not."""


def fit(source: Fields, given: Schema, target: Fields, wanted: Schema) -> Fit:
    """Compare a schema of `source` with one of `target`. Raises TooManySteps.

    A schema that does not say its types (`ANY`) fits everything. `integer` fits `number`; nothing else is converted.
    Items of lists are compared, three levels deep; members of objects are not.
    """
    types = have, want = source.types(given), target.types(wanted)
    null = False
    for level in range(ITEM_LEVELS + 1):
        says = ANY not in (have, want)
        # Of a source that may be null the other types count; a source of nulls alone needs null.
        needed = have if have == NULL else have - NULL
        if says and not all(name in want or (name == "integer" and "number" in want) for name in needed):
            return Fit(*types, fits=False, may_be_null=False)
        null = null or ("null" in have and says and "null" not in want)
        if level == ITEM_LEVELS or not (_only_arrays(have) and _only_arrays(want)):
            break
        items, taken = source.part(given, Part.ITEMS), target.part(wanted, Part.ITEMS)
        if items.presence is not Presence.DECLARED or taken.presence is not Presence.DECLARED:
            break
        given, wanted = items.schema, taken.schema
        have, want = source.types(given), target.types(wanted)
    return Fit(*types, fits=True, may_be_null=null)


def _only_arrays(types: Types) -> bool:
    """Whether values of these types are lists, or null."""
    return types - NULL == {"array"}
