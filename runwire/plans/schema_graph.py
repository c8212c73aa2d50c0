"""The references of a JSON Schema (drafts 7 to 2020-12), and the graph of its subschemas, which services walk.

Rule 1: a subschema is one node, however often it is referenced, so parsing time depends on the text, not on its
expanded size. A recursive schema becomes a cycle of nodes.
Rule 2: the graph contains everything that a checker would follow. Only references inside the schema are followed; of
any other its node says why not (`Subschema.unresolved`).
Rule 3: no recursion, so neither depth nor a chain of references exhausts the stack. No value makes it raise.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar
from urllib.parse import unquote

from runwire.plans.templates import is_index

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_SHOWN_CHARACTERS = 80


def steps_of(reference: str) -> list[str]:
    """Return the names in a JSON pointer, which is percent-encoded as in a URL: `#/$defs/a~1b` has two."""
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference).split("/")[1:]]


def schema_at(root: Any, steps: list[str]) -> Any:
    """Return the schema to which the names in a JSON pointer lead; None: they lead nowhere, or to no schema."""
    place = root
    for step in steps:
        if isinstance(place, Mapping):
            place = place.get(step)
        elif isinstance(place, list) and is_index(step) and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place if isinstance(place, Mapping | bool) else None


@dataclass(slots=True, eq=False)
class Subschema:
    """One node. Each field holds the subschemas that its keywords apply to the same value, or to a part of it."""

    schema: Any = True
    """Its own JSON: an object, true or false. Anything else counts as true."""
    everything: list[Self] = field(default_factory=list)
    """The members of allOf, and what references lead to."""
    unions: list[list[Self]] = field(default_factory=list)
    """The members of anyOf, and of oneOf."""
    conditions: list[tuple[Self, Self | None, Self | None]] = field(default_factory=list)
    """if, then and else."""
    negated: Self | None = None
    dependent: dict[str, Self] = field(default_factory=dict)
    properties: dict[str, Self] = field(default_factory=dict)
    patterns: dict[str, Self] = field(default_factory=dict)
    additional: Self | None = None
    unevaluated: Self | None = None
    names: Self | None = None
    prefix: list[Self] = field(default_factory=list)
    items: Self | None = None
    unevaluated_items: Self | None = None
    contains: Self | None = None
    unresolved: str = ""
    """Why a reference cannot be followed."""

    def in_place(self) -> Iterator[Self]:
        """Yield the subschemas that apply to the same value."""
        yield from self.everything
        for union in self.unions:
            yield from union
        for condition in self.conditions:
            yield from filter(None, condition)
        if self.negated:
            yield self.negated
        yield from self.dependent.values()

    def parts(self) -> Iterator[Self]:
        """Yield every subschema to which this one leads directly."""
        yield from self.in_place()
        yield from self.properties.values()
        yield from self.patterns.values()
        yield from self.prefix
        members = (self.additional, self.unevaluated, self.names, self.items, self.unevaluated_items, self.contains)
        yield from filter(None, members)


N = TypeVar("N", bound=Subschema)


def read_graph(schema: Any, kind: type[N]) -> list[N]:
    """Return the nodes of a schema, its root first. `kind`: the class of the nodes."""
    return _Reader(schema, kind).nodes


class _Unresolved(Exception):
    pass


class _Reader(Generic[N]):
    def __init__(self, root: Any, kind: type[N]) -> None:
        self._root = root
        self._kind = kind
        self._by_identity: dict[int, N] = {}
        self._anchors: dict[str, Any] | None = None
        self._ambiguous = ""
        self._todo: deque[tuple[N, Mapping[str, Any]]] = deque()
        self.nodes: list[N] = []
        self._node(root)
        while self._todo:
            self._read(*self._todo.popleft())

    def _node(self, schema: Any) -> N:
        """Return the node of a subschema. It is parsed later, since a schema may contain itself."""
        node = self._by_identity.get(id(schema)) if isinstance(schema, Mapping) else None
        if node is None:
            node = self._kind(schema)
            self.nodes.append(node)
            if isinstance(schema, Mapping):
                self._by_identity[id(schema)] = node
                self._todo.append((node, schema))
        return node

    def _read(self, node: N, schema: Mapping[str, Any]) -> None:
        node.everything = self._several(schema, "allOf")
        for keyword in _REFERENCES:
            if keyword in schema:
                try:
                    node.everything.append(self._node(self._resolved(schema[keyword])))
                except _Unresolved as error:
                    node.unresolved = node.unresolved or str(error)
        node.unions = [union for keyword in ("anyOf", "oneOf") if (union := self._several(schema, keyword))]
        if (condition := self._one(schema, "if")) is not None:
            node.conditions = [(condition, self._one(schema, "then"), self._one(schema, "else"))]
        node.negated = self._one(schema, "not")
        node.dependent = self._named(schema, "dependencies") | self._named(schema, "dependentSchemas")
        node.properties = self._named(schema, "properties")
        node.patterns = self._named(schema, "patternProperties")
        node.additional = self._one(schema, "additionalProperties")
        node.unevaluated = self._one(schema, "unevaluatedProperties")
        node.names = self._one(schema, "propertyNames")
        is_old = isinstance(schema.get("items"), list)  # drafts before 2020-12
        node.prefix = self._several(schema, "items" if is_old else "prefixItems")
        node.items = self._one(schema, "additionalItems" if is_old else "items")
        node.unevaluated_items = self._one(schema, "unevaluatedItems")
        node.contains = self._one(schema, "contains")

    def _one(self, schema: Mapping[str, Any], keyword: str) -> N | None:
        return self._node(schema[keyword]) if isinstance(schema.get(keyword), Mapping | bool) else None

    def _several(self, schema: Mapping[str, Any], keyword: str) -> list[N]:
        parts = schema.get(keyword)
        return [self._node(part) for part in parts] if isinstance(parts, list) else []

    def _named(self, schema: Mapping[str, Any], keyword: str) -> dict[str, N]:
        parts = schema.get(keyword)
        named = parts.items() if isinstance(parts, Mapping) else ()
        return {key: self._node(part) for key, part in named if not isinstance(part, list)}

    def _resolved(self, reference: Any) -> Any:
        """Return the schema to which `#`, `#/a/json/pointer`, `#anchor`, or one of them after the own `$id`, leads."""
        name = str(reference)[:_SHOWN_CHARACTERS]
        if not isinstance(reference, str):
            raise _Unresolved(f"the reference {name!r} is no text")
        own = self._root.get("$id") if isinstance(self._root, Mapping) else None
        local = reference.removeprefix(own) if isinstance(own, str) and own and not own.startswith("#") else reference
        if local and not local.startswith("#"):
            raise _Unresolved(f"the reference {name!r} points to another document; put it under $defs")
        anchor = unquote(local[1:])
        is_pointer = not anchor or anchor.startswith("/")
        found = schema_at(self._root, steps_of(local)) if is_pointer else self._anchored(anchor)
        if found is None:
            raise _Unresolved(f"the reference {name!r} leads nowhere")
        return found

    def _anchored(self, name: str) -> Any:
        """Return the subschema with an anchor; None: there is none."""
        if self._anchors is None:
            self._anchors = {}
            todo = [self._root]
            while todo:
                place = todo.pop()
                for keyword in _ANCHORS if isinstance(place, Mapping) else ():
                    anchor = place.get(keyword)
                    if isinstance(anchor, str) and self._anchors.setdefault(anchor, place) is not place:
                        self._ambiguous = f"the anchor {anchor[:_SHOWN_CHARACTERS]!r} stands in two places"
                todo.extend(place.values() if isinstance(place, Mapping) else place if isinstance(place, list) else ())
        if self._ambiguous:
            raise _Unresolved(self._ambiguous)
        return self._anchors.get(name)
