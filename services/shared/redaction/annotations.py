"""A JSON Schema, parsed once into nodes that know its annotations.

Rule 1: references are local. A reference that cannot be resolved makes its place unknown, and unknown values are
hidden.
Rule 2: parsing does not recurse, so no schema is too deep, and a recursive schema becomes a cycle of nodes.
Rule 3: each node knows whether an annotation is reachable from it. If none is, its value need not be inspected.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pydantic_core import SchemaError, SchemaValidator, core_schema

from contracts.tools.messages import ToolSpec
from services.shared.json_schema.bounds import MAX_PATTERNS

Schema = Mapping[str, Any] | bool | None
"""A JSON Schema as a Python value; None: the tool states no schema."""

_BINARY_FORMATS = frozenset({"binary", "base64", "base64url", "byte"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DEFINITIONS = ("$defs", "definitions")


@dataclass(slots=True, eq=False)
class Node:
    """One subschema. A field without its own keyword holds the keyword of the same name."""

    artifact: bool = False
    stream: bool = False
    stream_id: str | None = None
    source_field: str | None = None
    produces_sources: bool = False
    binary: bool = False
    unknown: bool = False
    never: bool = False
    types: frozenset[str] = frozenset()
    values: list[Any] | None = None
    required: frozenset[str] = frozenset()
    properties: dict[str, "Node"] = field(default_factory=dict)
    patterns: list[tuple[Callable[[str], bool], "Node"]] = field(default_factory=list)
    additional: "Node | None" = None
    unevaluated: "Node | None" = None
    prefix: list["Node"] = field(default_factory=list)
    items: "Node | None" = None
    contains: "Node | None" = None
    everything: list["Node"] = field(default_factory=list)
    unions: list[list["Node"]] = field(default_factory=list)
    conditions: list[tuple["Node", "Node | None", "Node | None"]] = field(default_factory=list)
    dependent: dict[str, "Node"] = field(default_factory=dict)
    hides: bool = False
    """An annotation that hides values is reachable from here."""
    cites: bool = False
    """`produces_sources` is reachable from here."""

    def parts(self) -> Iterator["Node"]:
        """Yield each node whose annotations could apply to the value or to a part of it."""
        yield from self.properties.values()
        yield from (part for _, part in self.patterns)
        yield from self.prefix
        yield from self.everything
        yield from self.dependent.values()
        for union in self.unions:
            yield from union
        for condition in self.conditions:
            yield from (part for part in condition if part)
        yield from (part for part in (self.additional, self.unevaluated, self.items, self.contains) if part)


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """A parsed schema: its root, and the stream ids that it names."""

    root: Node
    stream_ids: frozenset[str]


def read_annotations(schema: "Schema | Annotations") -> Annotations:
    """Parse a schema. To redact many values of one tool, keep the result and pass it instead of the schema."""
    if isinstance(schema, Annotations):
        return schema
    reader = _Reader(schema)
    root = reader.node(schema)
    reader.read_all()
    nodes = reader.nodes
    _propagate(nodes, [node for node in nodes if node.artifact or node.unknown], "hides")
    _propagate(nodes, [node for node in nodes if node.produces_sources], "cites")
    return Annotations(root, frozenset(node.stream_id for node in nodes if node.stream_id))


def _propagate(nodes: Iterable[Node], annotated: list[Node], flag: str) -> None:
    """Set a flag on the annotated nodes and on all nodes that lead to them."""
    parents: dict[Node, list[Node]] = {}
    for node in nodes:
        for part in node.parts():
            parents.setdefault(part, []).append(node)
    todo = list(annotated)
    while todo:
        node = todo.pop()
        if not getattr(node, flag):
            setattr(node, flag, True)
            todo.extend(parents.get(node, ()))


class _Reader:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._by_identity: dict[int, Node] = {}
        self._todo: deque[tuple[Node, Mapping[str, Any]]] = deque()
        self._anchors: dict[str, Any] | None = None
        self._patterns = 0
        self.nodes: list[Node] = []

    def node(self, schema: Any) -> Node:
        """Return the node of a subschema. It may be parsed later, since a schema may contain itself."""
        if isinstance(schema, Mapping):
            known = self._by_identity.get(id(schema))
            if known is not None:
                return known
            node = self._by_identity[id(schema)] = Node()
            self._todo.append((node, schema))
        else:
            node = Node(never=schema is False)
        self.nodes.append(node)
        return node

    def read_all(self) -> None:
        while self._todo:
            node, schema = self._todo.popleft()
            self._read_annotations(node, schema)
            self._read_shape(node, schema)
            self._read_object(node, schema)
            self._read_array(node, schema)
            self._read_composition(node, schema)

    def _read_annotations(self, node: Node, schema: Mapping[str, Any]) -> None:
        node.stream_id = _text(schema.get("stream_id"))
        node.stream = bool(schema.get("stream", node.stream_id))
        node.source_field = _text(schema.get("source_field"))
        node.produces_sources = bool(schema.get("produces_sources"))
        node.binary = (
            _text(schema.get("format")) in _BINARY_FORMATS or _text(schema.get("contentEncoding")) in _BINARY_FORMATS
        )
        # Streamed values are for people, and models do not read bytes.
        node.artifact = bool(schema.get("artifact") or schema.get("stream")) or node.binary

    def _read_shape(self, node: Node, schema: Mapping[str, Any]) -> None:
        kinds = schema.get("type")
        node.types = frozenset(_texts([kinds] if isinstance(kinds, str) else kinds))
        if node.types and schema.get("nullable") is True:
            node.types |= {"null"}
        if "const" in schema:
            node.values = [schema["const"]]
        elif isinstance(schema.get("enum"), list):
            node.values = schema["enum"]
        node.required = frozenset(_texts(schema.get("required")))

    def _read_object(self, node: Node, schema: Mapping[str, Any]) -> None:
        node.properties = {key: self.node(part) for key, part in _mapping(schema.get("properties")).items()}
        node.patterns = [
            (self._matcher(pattern), self.node(part))
            for pattern, part in _mapping(schema.get("patternProperties")).items()
        ]
        node.additional = self._optional(schema, "additionalProperties")
        node.unevaluated = self._optional(schema, "unevaluatedProperties")
        for keyword in ("dependentSchemas", "dependencies"):
            for key, part in _mapping(schema.get(keyword)).items():
                if not isinstance(part, list):
                    node.dependent[key] = self.node(part)

    def _read_array(self, node: Node, schema: Mapping[str, Any]) -> None:
        items = schema.get("items")
        if isinstance(items, list):  # drafts before 2020-12
            node.prefix = [self.node(part) for part in items]
            node.items = self._optional(schema, "additionalItems")
        else:
            node.prefix = [self.node(part) for part in _list(schema.get("prefixItems"))]
            node.items = self._optional(schema, "items") or self._optional(schema, "unevaluatedItems")
        node.contains = self._optional(schema, "contains")

    def _read_composition(self, node: Node, schema: Mapping[str, Any]) -> None:
        node.everything = [self.node(part) for part in _list(schema.get("allOf"))]
        for keyword in _REFERENCES:
            if keyword in schema:
                found = self._resolve(schema[keyword])
                node.unknown = node.unknown or found is None
                if found is not None:
                    node.everything.append(self.node(found))
        node.unions = [
            [self.node(part) for part in union]
            for keyword in ("anyOf", "oneOf")
            if (union := _list(schema.get(keyword)))
        ]
        if "if" in schema:
            node.conditions.append(
                (self.node(schema["if"]), self._optional(schema, "then"), self._optional(schema, "else"))
            )

    def _optional(self, schema: Mapping[str, Any], keyword: str) -> Node | None:
        return self.node(schema[keyword]) if isinstance(schema.get(keyword), Mapping | bool) else None

    def _resolve(self, reference: Any) -> Any:
        """Resolve `#`, `#/a/json/pointer` or `#anchor`; None if it leads nowhere or out of the document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchored(pointer)
        place: Any = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping) and key in place:
                place = place[key]
            elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
                place = place[int(key)]
            else:
                return None
        return place if isinstance(place, Mapping | bool) else None

    def _anchored(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            root = self._root if isinstance(self._root, Mapping) else {}
            parts = [
                part
                for keyword in _DEFINITIONS
                for part in _mapping(root.get(keyword)).values()
                if isinstance(part, Mapping)
            ]
            for part in parts:
                for anchor in (part.get("$anchor"), part.get("$dynamicAnchor")):
                    if isinstance(anchor, str):
                        self._anchors.setdefault(anchor, part)
        return self._anchors.get(name)

    def _matcher(self, pattern: str) -> Callable[[str], bool]:
        self._patterns += 1
        return _matcher(pattern) if self._patterns <= MAX_PATTERNS else lambda _: True


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of property names in linear time. A pattern without one matches every name: in doubt, hide."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except (SchemaError, ValueError):
        return lambda _: True


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> Iterator[str]:
    return (item for item in _list(value) if isinstance(item, str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


MAX_CACHED_SPECS = 1024


class AnnotationCache:
    """The parsed annotations of output schemas."""

    def __init__(self) -> None:
        self._annotations: OrderedDict[str, Annotations] = OrderedDict()

    def of(self, digest: str, spec: ToolSpec) -> Annotations:
        """Return the annotations of a specification."""
        annotations = self._annotations.get(digest)
        if annotations is None:
            annotations = self._annotations[digest] = read_annotations(spec.output_schema)
            if len(self._annotations) > MAX_CACHED_SPECS:
                self._annotations.popitem(last=False)
        return annotations
