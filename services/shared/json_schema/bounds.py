"""Bounds of a schema's size, and of the work of checking one value. Pure, and independent of a machine's speed.

A schema is refused by its expanded size, in which each reference counts as everything it leads to. A recursive schema
has no such size. For it, and for unusually large values, the steps of checking this value are counted before the check.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from runwire.plans.schema_folding import MAX_PATTERN_CHARACTERS, MAX_PATTERNS, pattern_size
from runwire.plans.schema_graph import Subschema, read_graph
from runwire.plans.templates import is_deeper

MAX_SCHEMA_BYTES = 128 << 10
MAX_SCHEMA_DEPTH = 100
"""Levels of nested JSON."""
MAX_EXPANDED_SUBSCHEMAS = 50_000
"""Subschemas, with each reference counted as all that it leads to."""
MAX_PATTERN_PARTS = 20_000
"""Characters and character classes of all regular expressions together, with counts such as `{3,90}` written out."""

MAX_STEPS = 5_000_000
"""Comparisons of a subschema with a value or a part of it in one check: about 60 ms."""

_TOO_MANY_SUBSCHEMAS = (
    f"with its references it expands to more than {MAX_EXPANDED_SUBSCHEMAS:,} subschemas; use fewer alternatives"
)
_TOO_MANY_STEPS = "a check of the value would take too many steps"

_SCALARS_PER_STEP = 10
"""Scalars of an `enum` that are compared in the time of one step."""
_EXACT_DIVISION_BELOW = 1e-9
_EXACT_DIVISION_STEPS = 500
"""Steps of checking a `multipleOf` below that number: the checker divides by it in exact fractions."""


class InvalidSchema(ValueError):
    """A JSON Schema cannot be used; the text says why."""


class TooMuchWork(InvalidSchema):
    """Checking this value against this schema would take too long."""


@dataclass(slots=True, eq=False)
class Counted(Subschema):
    """A subschema with what checking a value against it costs."""

    steps: int = 1
    """Steps of checking a value against the keywords of this subschema alone."""
    is_leaf: bool = False
    revisits: bool = False
    """It has an `unevaluated…` keyword: the checker visits all that applies to the value once more for each of its
    parts."""
    alternatives: list[Self] = field(default_factory=list)
    """Members of anyOf and oneOf without the leaves. Where none fits, the faults of each are reported."""
    leaf_alternatives: int = 0
    """Leaves among them, each of one step."""
    same: list[Self] = field(default_factory=list)
    """Other subschemas of the same value."""
    members: list[Self] = field(default_factory=list)
    """Subschemas of every member of an object."""
    each: list[Self] = field(default_factory=list)
    """Subschemas of every item of a list."""


def read_counted(schema: Any) -> list[Counted]:
    """Return the nodes of a schema, its root first. Raises InvalidSchema for a reference that cannot be followed."""
    nodes = read_graph(schema, Counted)
    for node in nodes:
        if node is not nodes[0] and isinstance(node.schema, Mapping) and isinstance(node.schema.get("$id"), str):
            raise InvalidSchema("a part of it has an `$id` of its own; references are local to the whole")
        if node.unresolved:
            raise InvalidSchema(node.unresolved)
        node.is_leaf = next(node.parts(), None) is None
        node.revisits = node.unevaluated is not None or node.unevaluated_items is not None
        applying = (node.negated, *(part for condition in node.conditions for part in condition))
        node.same = [*node.everything, *filter(None, applying)]
        node.members = [*node.patterns.values(), *filter(None, (node.additional, node.unevaluated))]
        node.each = list(filter(None, (node.items, node.contains, node.unevaluated_items)))
        if isinstance(node.schema, Mapping):
            node.steps = _own_steps(node.schema)
    for node in nodes:
        alternatives = [member for union in node.unions for member in union]
        node.alternatives = [member for member in alternatives if not (member.is_leaf and member.steps == 1)]
        node.leaf_alternatives = len(alternatives) - len(node.alternatives)
    return nodes


def _own_steps(schema: Mapping[str, Any]) -> int:
    """Count what is compared as a whole: the values of `const` and `enum`, and exact divisions."""
    scalars = containers = inside = 0
    todo: list[Any] = [schema.get("const"), *(values if isinstance(values := schema.get("enum"), list) else ())]
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


def check_text(size: int, schema: Any) -> None:
    """Raise InvalidSchema if a schema is too large or too deep to parse. `size`: its bytes as JSON."""
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it has {size:,} bytes, and at most {MAX_SCHEMA_BYTES:,} are taken")
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise InvalidSchema(f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")


class Size(NamedTuple):
    """The expanded size of a schema. `counts`: it does not bound the steps of a check, so they have to be counted."""

    expanded: int
    counts: bool


def size_of(nodes: list[Counted]) -> Size:
    """Return the expanded size of a schema. Raises InvalidSchema above the bounds."""
    texts = [node.schema["pattern"] for node in nodes if isinstance(node.schema, Mapping) and "pattern" in node.schema]
    patterns = [each for each in texts if isinstance(each, str)] + [each for node in nodes for each in node.patterns]
    if len(patterns) > MAX_PATTERNS:
        raise InvalidSchema(f"it has {len(patterns)} regular expressions, and at most {MAX_PATTERNS} are taken")
    if (longest := max(map(len, patterns), default=0)) > MAX_PATTERN_CHARACTERS:
        raise InvalidSchema(
            f"a regular expression has {longest:,} characters, and at most {MAX_PATTERN_CHARACTERS:,} are taken"
        )
    if sum(pattern_size(pattern, MAX_PATTERN_PARTS + 1) for pattern in patterns) > MAX_PATTERN_PARTS:
        raise InvalidSchema(
            f"its regular expressions expand to more than {MAX_PATTERN_PARTS:,} parts; use smaller counts"
        )
    components = _components(nodes[0])
    expanded: dict[Counted, int] = {}
    for component in components:  # A component comes after all those that it references.
        total = sum(
            node.steps + (1 + node.revisits) * sum(expanded.get(part, part.steps) for part in node.parts())
            for node in component
        )
        expanded |= dict.fromkeys(component, total)
        if total > MAX_EXPANDED_SUBSCHEMAS:
            raise InvalidSchema(_TOO_MANY_SUBSCHEMAS)
    _check_in_place(nodes)
    recursive = any(len(component) > 1 for component in components) or any(node in node.parts() for node in nodes)
    return Size(expanded[nodes[0]], recursive or any(node.revisits for node in nodes))


def _check_in_place(nodes: list[Counted]) -> None:
    """Bound the subschemas that apply to one value without going deeper into it.

    A recursion among these would never end, so it is refused.
    """
    expanded: dict[Counted, int] = {}
    begun: set[Counted] = set()
    for start in nodes:
        todo = [start]
        while todo:
            node = todo[-1]
            if node in expanded:
                todo.pop()
            elif node in begun and all(part in expanded for part in node.in_place()):
                expanded[node] = 1 + (1 + node.revisits) * sum(expanded[part] for part in node.in_place())
                if expanded[node] > MAX_EXPANDED_SUBSCHEMAS:
                    raise InvalidSchema(_TOO_MANY_SUBSCHEMAS)
            elif node in begun:
                raise InvalidSchema("a part of it refers to itself without going deeper into the value")
            else:
                begun.add(node)
                todo += [part for part in node.in_place() if part not in expanded]


def _components(root: Counted) -> list[list[Counted]]:
    """Return the strongly connected subschemas, referenced ones first (Tarjan's algorithm, without recursion)."""
    number: dict[Counted, int] = {}
    low: dict[Counted, int] = {}
    waiting: list[Counted] = []
    is_waiting: set[Counted] = set()
    found: list[list[Counted]] = []
    path = [(root, root.parts())]
    while path:
        node, parts = path[-1]
        if node not in number:
            number[node] = low[node] = len(number)
            waiting.append(node)
            is_waiting.add(node)
        part = next(parts, None)
        if part is not None:
            if part not in number:
                path.append((part, part.parts()))
            elif part in is_waiting:
                low[node] = min(low[node], number[part])
            continue
        path.pop()
        if path:
            low[path[-1][0]] = min(low[path[-1][0]], low[node])
        if low[node] == number[node]:
            at = waiting.index(node)
            found.append(waiting[at:])
            is_waiting.difference_update(waiting[at:])
            del waiting[at:]
    return found


class Work(NamedTuple):
    """The upper bound of the work of checking a value."""

    steps: int
    alternatives: int = 0
    """The steps inside anyOf and oneOf. Where no member fits, the complaint describes what was found in each of
    them."""
    worst: int = 0
    """The most such steps of one subschema at one part of the value."""


_LEAF = Work(1)


class _Counter:
    """Counts the steps of checking one value; each pair of a subschema and a part of the value is counted once."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[tuple[int, int], Work] = {}

    def work(self, node: Counted, value: Any) -> Work:
        if node.is_leaf and node.steps == 1:
            return _LEAF
        # Of a text, a number or null, all that counts is the schema.
        pair = (id(node), id(value) if isinstance(value, Mapping | list) else 0)
        known = self._known.get(pair)
        if known is not None:
            return known
        self._left -= node.steps
        if self._left < 0:
            raise TooMuchWork("the value is too large for a schema of so many parts")
        inside = self._sum((part, value) for part in node.alternatives)
        others = self._sum(_parts(node, value))
        leaves = node.leaf_alternatives
        steps = node.steps + inside.steps + leaves + others.steps
        if node.revisits:
            steps *= 1 + (len(value) if isinstance(value, Mapping | list) else 1)
        described = inside.steps + leaves
        found = self._known[pair] = Work(steps, described + others.alternatives, max(described, others.worst))
        return found

    def _sum(self, pairs: Iterable[tuple[Counted, Any]]) -> Work:
        steps = alternatives = worst = 0
        for part, value in pairs:
            found = self.work(part, value)
            steps += found.steps
            alternatives += found.alternatives
            worst = max(worst, found.worst)
            if steps > MAX_STEPS:
                raise TooMuchWork(_TOO_MANY_STEPS)
        return Work(steps, alternatives, worst)


def _parts(node: Counted, value: Any) -> Iterator[tuple[Counted, Any]]:
    """Yield the other subschemas that apply to a value, each with the part of the value."""
    yield from ((part, value) for part in node.same)
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in node.dependent:
                yield node.dependent[key], value
            if key in node.properties:
                yield node.properties[key], item
            yield from ((part, item) for part in node.members)
            if node.names:
                yield node.names, key
    elif isinstance(value, list):
        yield from zip(node.prefix, value, strict=False)
        yield from ((part, item) for item in value for part in node.each)


def work_of(root: Counted, value: Any, most: int) -> Work:
    """Return the work of checking a value against a schema.

    Raises TooMuchWork above `MAX_STEPS`, and for more than `most` pairs of a subschema and a part of the value.
    """
    try:
        work = _Counter(most).work(root, value)
    except RecursionError:
        raise TooMuchWork("schema and value together are too deep") from None
    if work.steps > MAX_STEPS:
        raise TooMuchWork(_TOO_MANY_STEPS)
    return work
