"""The annotations of a tool's output schema, on the graph of its subschemas, and which of these apply to a value.

Rule 1: a reference that cannot be followed makes its place unknown, and unknown values are hidden.
Rule 2: each node knows whether an annotation is reachable from it. If none is, its value need not be inspected.

To a value apply all of `allOf` and `$ref`, and those members of a union that may fit. A member is excluded only when it
certainly does not fit: another type, a different constant, a missing required name. Keywords that are not evaluated
(`pattern`, `minimum`, `not` …) count as fitting, so doubt leads to more annotations, never to fewer. When no member
fits, all of them apply. When the fitting members do not declare a name, the excluded ones decide.

Rule 3: the work is linear in the value, whatever the schema is. A value beyond the bound is hidden as a whole.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, NamedTuple, Self

from contracts.tools.messages import ToolSpec
from runwire.plans.schema_folding import MAX_PATTERNS, matcher
from runwire.plans.schema_graph import Subschema, read_graph
from services.runtime.newest import Newest
from services.shared.redaction.json_values import is_placeholder

Schema = Mapping[str, Any] | bool | None
"""A JSON Schema as a Python value; None: the tool states no schema."""
MAX_CACHED_SPECS = 1024
_BINARY_FORMATS = frozenset({"binary", "base64", "base64url", "byte"})
MAX_DEPTH = 64
"""Levels of nesting that are followed. A deeper value is hidden as a whole if it could be annotated."""
_FIRST_CHECKS = 100_000
_CHECKS_PER_VALUE = 100
"""Checks of a subschema against a value: this many at first, and this many more for each part of the value."""
_WHOLE_NUMBER = frozenset({"integer", "number"})
_ANY_TYPE = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_TYPES: tuple[tuple[type | UnionType, frozenset[str]], ...] = (
    (NoneType, frozenset({"null"})),
    (bool, frozenset({"boolean"})),
    (int, _WHOLE_NUMBER),
    (float, frozenset({"number"})),
    (str | bytes | bytearray | memoryview, frozenset({"string"})),
    (Mapping, frozenset({"object"})),
    (list | tuple, frozenset({"array"})),
)
"""The JSON types of a Python value. The first matching row counts; a value without a row may be anything."""


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


_UNKNOWN = Node(unknown=True, hides=True)


@dataclass(frozen=True, slots=True)
class View:
    """The subschemas that apply to one value, and the union members that were excluded."""

    applying: list[Node]
    excluded: list[Node]


class Views:
    """The views of one value and its parts. Results are cached by identity, so create one object per value."""

    def __init__(self) -> None:
        self._judged: dict[tuple[int, int], bool] = {}
        self._checks_left = _FIRST_CHECKS

    def of(self, nodes: list[Node], value: Any) -> View:
        """Return the view of `value` for `nodes`."""
        self._checks_left += _CHECKS_PER_VALUE
        if self._checks_left < 0:
            return View([_UNKNOWN], [])
        applying: list[Node] = []
        excluded: list[Node] = []
        seen: set[Node] = set()
        todo = list(reversed(nodes))
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            applying.append(node)
            more = list(node.everything)
            more += [part for key, part in node.dependent.items() if isinstance(value, Mapping) and key in value]
            for condition, then, otherwise in node.conditions:
                met = (condition, then, otherwise) if self.fits(condition, value) else (otherwise,)
                more += [part for part in met if part]
            for union in node.unions:
                fitting = [member for member in union if self.fits(member, value)]
                more.extend(fitting or union)
                excluded.extend(member for member in union if fitting and member not in fitting)
            todo.extend(reversed(more))
        self._checks_left -= len(applying)
        return View(applying, excluded) if self._checks_left >= 0 else View([_UNKNOWN], [])

    def of_key(self, view: View, value: Mapping[str, Any], key: str) -> list[Node]:
        """Return the nodes that apply to `value[key]`."""
        self._checks_left -= len(view.applying)
        found = [part for node in view.applying for part in _for_key(node, key)]
        if not found and view.excluded:
            found = [part for node in self.of(view.excluded, value).applying for part in _for_key(node, key)]
        return found or [node.unevaluated for node in view.applying if node.unevaluated]

    def of_index(self, view: View, value: Any, index: int) -> list[Node]:
        """Return the nodes that apply to `value[index]` of a list."""
        self._checks_left -= len(view.applying)
        found = [part for node in view.applying for part in _for_index(node, index)]
        if not found and view.excluded:
            found = [part for node in self.of(view.excluded, value).applying for part in _for_index(node, index)]
        return found

    def fits(self, node: Node, value: Any, depth: int = 0) -> bool:
        """Return whether `value` may fit a subschema; False is certain."""
        self._checks_left -= 1
        if node.never or not _plain_fits(node, value):
            return False
        if depth >= MAX_DEPTH or self._checks_left < 0:
            return True
        place = (id(node), id(value))
        known = self._judged.get(place)
        if known is None:
            self._judged[place] = True  # a schema that refers to itself on the same value: the rest of it decides
            known = self._judged[place] = self._inside_fits(node, value, depth + 1)
        return known

    def _inside_fits(self, node: Node, value: Any, depth: int) -> bool:
        if not all(self.fits(part, value, depth) for part in node.everything):
            return False
        if not all(any(self.fits(member, value, depth) for member in union) for union in node.unions):
            return False
        if isinstance(value, Mapping):
            return all(self.fits(part, item, depth) for key, item in value.items() for part in _for_key(node, key))
        if isinstance(value, list | tuple):
            return all(
                self.fits(part, item, depth)
                for index, item in enumerate(value)
                for part in _for_index(node, index, loose=False)
            )
        return True


def _for_key(node: Node, key: str) -> list[Node]:
    parts = [part for matches, part in node.matching if matches(key)]
    if key in node.properties:
        parts.append(node.properties[key])
    if not parts and node.additional:
        parts.append(node.additional)
    return parts


def _for_index(node: Node, index: int, *, loose: bool = True) -> list[Node]:
    parts = (
        [node.prefix[index]]
        if index < len(node.prefix)
        else [part]
        if (part := node.items or node.unevaluated_items)
        else []
    )
    if loose and node.contains:
        parts.append(node.contains)
    return parts


def _plain_fits(node: Node, value: Any) -> bool:
    if is_placeholder(value):  # stands for a value of any type
        return True
    if node.types:
        is_whole = isinstance(value, float) and value.is_integer()
        names = (
            _WHOLE_NUMBER if is_whole else next((each for kind, each in _TYPES if isinstance(value, kind)), _ANY_TYPE)
        )
        if names.isdisjoint(node.types):
            return False
    if node.values is not None and value not in node.values:
        return False
    return not (node.required and isinstance(value, Mapping)) or all(key in value for key in node.required)


class Arguments(NamedTuple):
    """The names that a tool declares, and whether it accepts others."""

    names: frozenset[str]
    others: bool


def arguments_of(schema: Schema) -> Arguments:
    """Return a tool's arguments.

    It accepts others if its schema allows them, or if it declares none and forbids none.
    """
    views = Views()
    view = views.of([read_annotations(schema).root], {})
    nodes = [*view.applying, *views.of(view.excluded, {}).applying]
    names = frozenset(name for node in nodes for name in node.properties)
    extras = [node.additional for node in nodes if node.additional]
    return Arguments(names, any(not extra.never for extra in extras) or not (names or extras))
