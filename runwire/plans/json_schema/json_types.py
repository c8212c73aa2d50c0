"""The JSON types that a schema allows. `ANY` means that it does not say."""

from collections.abc import Callable
from typing import Any

from .folding import Reading, Schema

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
