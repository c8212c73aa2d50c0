"""A JSON Schema (draft 2020-12) as a graph of subschemas, to bound the cost of checking a value. Pure.

Rule 1: a subschema is one node, however often it is referenced, so parsing time depends on the text, not on its
expanded size.
Rule 2: the graph contains everything that a checker would follow. A reference that is not local, or unresolvable, is
refused.
Rule 3: no recursion, so neither depth nor a chain of references exhausts the stack.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

_REFERENCES = ("$ref", "$dynamicRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_SHOWN_CHARACTERS = 80
_SCALARS_PER_STEP = 10
"""Scalars of an `enum` that are compared in the time of one step."""
_EXACT_DIVISION_BELOW = 1e-9
_EXACT_DIVISION_STEPS = 500
"""Steps of checking a `multipleOf` below that number: the checker divides by it in exact fractions."""


class InvalidSchema(ValueError):
    """A JSON Schema cannot be used; the text says why."""


@dataclass(slots=True, eq=False)
class Subschema:
    """One node. Each field holds the subschemas that its keywords apply to the same value, or to a part of it."""

    alternatives: list["Subschema"] = field(default_factory=list)
    """Members of anyOf and oneOf. Where none fits, the faults of each are reported."""
    same: list["Subschema"] = field(default_factory=list)
    dependent: dict[str, "Subschema"] = field(default_factory=dict)
    properties: dict[str, "Subschema"] = field(default_factory=dict)
    patterns: list["Subschema"] = field(default_factory=list)
    others: list["Subschema"] = field(default_factory=list)
    names: list["Subschema"] = field(default_factory=list)
    prefix: list["Subschema"] = field(default_factory=list)
    items: list["Subschema"] = field(default_factory=list)
    revisits: bool = False
    """It has an `unevaluated…` keyword: the checker visits all that applies to the value once more for each of its
    parts."""
    is_leaf: bool = False
    steps: int = 1
    """Steps of checking a value against the keywords of this subschema alone."""

    def in_place(self) -> Iterator["Subschema"]:
        """Yield the subschemas that apply to the same value."""
        yield from self.alternatives
        yield from self.same
        yield from self.dependent.values()

    def parts(self) -> Iterator["Subschema"]:
        """Yield every subschema that this one leads to directly."""
        yield from self.in_place()
        yield from self.properties.values()
        for several in (self.patterns, self.others, self.names, self.prefix, self.items):
            yield from several


@dataclass(frozen=True, slots=True)
class Graph:
    """A parsed schema."""

    root: Subschema
    nodes: list[Subschema]
    patterns: list[str]


def read_graph(schema: Any) -> Graph:
    """Parse a schema. Raises InvalidSchema for a reference that cannot be resolved inside it."""
    reader = _Reader(schema)
    root = reader.node(schema)
    reader.read_all()
    for node in reader.nodes:
        node.is_leaf = next(node.parts(), None) is None
    return Graph(root, reader.nodes, reader.patterns)


def _own_steps(schema: Mapping[str, Any]) -> int:
    """Count what is compared as a whole: the values of `const` and `enum`, and exact divisions."""
    scalars = containers = 0
    todo: list[Any] = [schema.get("const"), *(values if isinstance(values := schema.get("enum"), list) else ())]
    inside = 0
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            containers += 1
            inside += len(value)
            todo += value.values() if isinstance(value, dict) else value
        else:
            scalars += 1
    multiple = schema.get("multipleOf")
    is_exact = isinstance(multiple, int | float) and 0 < abs(multiple) < _EXACT_DIVISION_BELOW
    return 1 + containers + inside + scalars // _SCALARS_PER_STEP + is_exact * _EXACT_DIVISION_STEPS


class _Reader:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._by_identity: dict[int, Subschema] = {}
        self._anchors: dict[str, Any] | None = None
        self._todo: deque[tuple[Subschema, Mapping[str, Any]]] = deque()
        self.nodes: list[Subschema] = []
        self.patterns: list[str] = []

    def node(self, schema: Any) -> Subschema:
        """Return the node of a subschema, which is parsed later."""
        node = self._by_identity.get(id(schema)) if isinstance(schema, Mapping) else None
        if node is None:
            node = Subschema()
            self.nodes.append(node)
            if isinstance(schema, Mapping):
                self._by_identity[id(schema)] = node
                self._todo.append((node, schema))
        return node

    def read_all(self) -> None:
        while self._todo:
            node, schema = self._todo.popleft()
            if schema is not self._root and isinstance(schema.get("$id"), str):
                raise InvalidSchema("a part of it has an `$id` of its own; references are local to the whole")
            self._read_in_place(node, schema)
            self._read_object(node, schema)
            self._read_array(node, schema)
            node.steps = _own_steps(schema)
            if isinstance(pattern := schema.get("pattern"), str):
                self.patterns.append(pattern)

    def _read_in_place(self, node: Subschema, schema: Mapping[str, Any]) -> None:
        node.alternatives = [*self._several(schema, "anyOf"), *self._several(schema, "oneOf")]
        node.same = self._several(schema, "allOf")
        for keyword in ("not", "if", "then", "else"):
            node.same += self._one(schema, keyword)
        node.same += [self.node(self._resolved(schema[keyword])) for keyword in _REFERENCES if keyword in schema]
        for keyword in ("dependentSchemas", "dependencies"):
            node.dependent |= {
                key: part for key, part in self._mapped(schema, keyword).items() if key not in node.dependent
            }

    def _read_object(self, node: Subschema, schema: Mapping[str, Any]) -> None:
        node.properties = self._mapped(schema, "properties")
        patterns = self._mapped(schema, "patternProperties")
        self.patterns += patterns
        node.patterns = list(patterns.values())
        node.names = self._one(schema, "propertyNames")
        node.others = [*self._one(schema, "additionalProperties"), *self._one(schema, "unevaluatedProperties")]
        node.revisits = "unevaluatedProperties" in schema or "unevaluatedItems" in schema

    def _read_array(self, node: Subschema, schema: Mapping[str, Any]) -> None:
        node.prefix = self._several(schema, "prefixItems")
        for keyword in ("items", "contains", "unevaluatedItems", "additionalItems"):
            node.items += self._one(schema, keyword)

    def _one(self, schema: Mapping[str, Any], keyword: str) -> list[Subschema]:
        return [self.node(schema[keyword])] if isinstance(schema.get(keyword), Mapping | bool) else []

    def _several(self, schema: Mapping[str, Any], keyword: str) -> list[Subschema]:
        parts = schema.get(keyword)
        return [self.node(part) for part in parts] if isinstance(parts, list) else []

    def _mapped(self, schema: Mapping[str, Any], keyword: str) -> dict[str, Subschema]:
        parts = schema.get(keyword)
        return (
            {key: self.node(part) for key, part in parts.items() if not isinstance(part, list)}
            if isinstance(parts, Mapping)
            else {}
        )

    def _resolved(self, reference: Any) -> Any:
        name = str(reference)[:_SHOWN_CHARACTERS]
        if not isinstance(reference, str):
            raise InvalidSchema(f"the reference {name!r} is no text")
        own = self._root.get("$id") if isinstance(self._root, Mapping) else None
        local = reference.removeprefix(own) if isinstance(own, str) and own and not own.startswith("#") else reference
        if local and not local.startswith("#"):
            raise InvalidSchema(f"the reference {name!r} points to another document; put it under $defs")
        found = self._at(unquote(local[1:]))
        if not isinstance(found, Mapping | bool):
            raise InvalidSchema(f"the reference {name!r} leads nowhere")
        return found

    def _at(self, pointer: str) -> Any:
        if pointer and not pointer.startswith("/"):
            return self._anchored(pointer)
        place = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping):
                place = place.get(key)
            elif (
                isinstance(place, list)
                and key.isdecimal()
                and len(key) < len(str(len(place))) + 1
                and int(key) < len(place)
            ):
                place = place[int(key)]
            else:
                return None
        return place

    def _anchored(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            todo = [self._root]
            while todo:
                place = todo.pop()
                for keyword in _ANCHORS if isinstance(place, Mapping) else ():
                    if (
                        isinstance(anchor := place.get(keyword), str)
                        and self._anchors.setdefault(anchor, place) is not place
                    ):
                        raise InvalidSchema(f"the anchor {anchor[:_SHOWN_CHARACTERS]!r} stands in two places")
                todo.extend(place.values() if isinstance(place, Mapping) else place if isinstance(place, list) else ())
        return self._anchors.get(name)
