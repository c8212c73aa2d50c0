"""The annotations of a tool's output schema, on the graph of its subschemas.

Rule 1: a reference that cannot be followed makes its place unknown, and unknown values are hidden.
Rule 2: each node knows whether an annotation is reachable from it. If none is, its value need not be inspected.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from contracts.tools.messages import ToolSpec
from runwire.plans.schema_folding import MAX_PATTERNS, matcher
from runwire.plans.schema_graph import Subschema, read_graph
from services.runtime.newest import Newest

Schema = Mapping[str, Any] | bool | None
"""A JSON Schema as a Python value; None: the tool states no schema."""
MAX_CACHED_SPECS = 1024
_BINARY_FORMATS = frozenset({"binary", "base64", "base64url", "byte"})


@dataclass(slots=True, eq=False)
class Node(Subschema):
    """A subschema with its annotations. A field without its own keyword holds the keyword of the same name."""

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
    matching: list[tuple[Callable[[str], bool], Self]] = field(default_factory=list)
    """The tests of `patternProperties`, with what they lead to."""
    hides: bool = False
    """An annotation that hides values is reachable from here."""
    cites: bool = False
    """`produces_sources` is reachable from here."""


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """A parsed schema: its root, and the stream ids that it names."""

    root: Node
    stream_ids: frozenset[str]


def read_annotations(schema: "Schema | Annotations") -> Annotations:
    """Parse a schema. To redact many values of one tool, keep the result and pass it instead of the schema."""
    if isinstance(schema, Annotations):
        return schema
    nodes = read_graph(schema, Node)
    patterns_left = MAX_PATTERNS
    for node in nodes:
        node.never = node.schema is False
        node.unknown = bool(node.unresolved)
        if isinstance(node.schema, Mapping):
            _annotate(node, node.schema)
        for pattern, part in node.patterns.items():
            patterns_left -= 1
            # A pattern without a test in linear time matches every name: in doubt, hide.
            matches = matcher(pattern) if patterns_left >= 0 else None
            node.matching.append((matches or (lambda _: True), part))
    _propagate(nodes, [node for node in nodes if node.artifact or node.unknown], "hides")
    _propagate(nodes, [node for node in nodes if node.produces_sources], "cites")
    return Annotations(nodes[0], frozenset(node.stream_id for node in nodes if node.stream_id))


def _annotate(node: Node, schema: Mapping[str, Any]) -> None:
    node.stream_id = _text(schema.get("stream_id"))
    node.stream = bool(schema.get("stream", node.stream_id))
    node.source_field = _text(schema.get("source_field"))
    node.produces_sources = bool(schema.get("produces_sources"))
    node.binary = not _BINARY_FORMATS.isdisjoint(_texts([schema.get("format"), schema.get("contentEncoding")]))
    # Streamed values are for people, and models do not read bytes.
    node.artifact = bool(schema.get("artifact") or schema.get("stream")) or node.binary
    kinds = schema.get("type")
    node.types = frozenset(_texts([kinds] if isinstance(kinds, str) else kinds))
    if node.types and schema.get("nullable") is True:
        node.types |= {"null"}
    if "const" in schema:
        node.values = [schema["const"]]
    elif isinstance(schema.get("enum"), list):
        node.values = schema["enum"]
    node.required = frozenset(_texts(schema.get("required")))


def _propagate(nodes: list[Node], annotated: list[Node], flag: str) -> None:
    """Set a flag on the annotated nodes and on all nodes that lead to them."""
    parents: dict[Node, list[Node]] = {}
    for node in nodes:
        for part in node.parts():
            parents.setdefault(part, []).append(node)
    todo = annotated
    while todo:
        node = todo.pop()
        if not getattr(node, flag):
            setattr(node, flag, True)
            todo.extend(parents.get(node, ()))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> Iterator[str]:
    return (item for item in value if isinstance(item, str)) if isinstance(value, list) else iter(())


class AnnotationCache:
    """The parsed annotations of output schemas."""

    def __init__(self) -> None:
        self._annotations = Newest[str, Annotations](MAX_CACHED_SPECS)

    def of(self, digest: str, spec: ToolSpec) -> Annotations:
        """Return the annotations of a specification."""
        annotations = self._annotations.get(digest)
        if annotations is None:
            annotations = self._annotations[digest] = read_annotations(spec.output_schema)
        return annotations
