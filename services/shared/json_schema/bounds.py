"""Bounds of a schema's size, and of the work of checking one value. Pure, and independent of a machine's speed.

A schema is refused by its expanded size, in which each reference counts as everything it leads to. A recursive schema
has no such size. For it, and for unusually large values, the steps of checking this value are counted before the check.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from services.shared.json_schema.graph import Graph, InvalidSchema, Subschema

MAX_SCHEMA_BYTES = 128 << 10
MAX_SCHEMA_DEPTH = 100
"""Levels of nested JSON."""
MAX_EXPANDED_SUBSCHEMAS = 50_000
"""Subschemas, with each reference counted as all that it leads to."""
MAX_PATTERNS = 100
MAX_PATTERN_CHARACTERS = 1_000
MAX_PATTERN_PARTS = 20_000
"""Characters and character classes of all regular expressions together, with counts such as `{3,90}` written out."""

MAX_STEPS = 5_000_000
"""Comparisons of a subschema with a value or a part of it in one check: about 60 ms."""

_TOO_MANY_SUBSCHEMAS = (
    f"with its references it expands to more than {MAX_EXPANDED_SUBSCHEMAS:,} subschemas; use fewer alternatives"
)


class TooMuchWork(InvalidSchema):
    """Checking this value against this schema would take too long."""


def check_text(size: int, schema: Any) -> None:
    """Raise InvalidSchema if a schema is too large or too deep to parse. `size`: its bytes as JSON."""
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it has {size:,} bytes, and at most {MAX_SCHEMA_BYTES:,} are taken")
    level = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [item for place in level for item in _inside(place) if isinstance(item, dict | list)]
        if not level:
            return
    raise InvalidSchema(f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _inside(place: Any) -> Any:
    return place.values() if isinstance(place, dict) else place


class Size(NamedTuple):
    """The expanded size of a schema. `counts`: it does not bound the steps of a check, so they have to be counted."""

    expanded: int
    counts: bool


def size_of(graph: Graph) -> Size:
    """Return the expanded size of a schema. Raises InvalidSchema above the bounds."""
    if len(graph.patterns) > MAX_PATTERNS:
        raise InvalidSchema(f"it has {len(graph.patterns)} regular expressions, and at most {MAX_PATTERNS} are taken")
    if (longest := max(map(len, graph.patterns), default=0)) > MAX_PATTERN_CHARACTERS:
        raise InvalidSchema(
            f"a regular expression has {longest:,} characters, and at most {MAX_PATTERN_CHARACTERS:,} are taken"
        )
    if sum(map(pattern_size, graph.patterns)) > MAX_PATTERN_PARTS:
        raise InvalidSchema(
            f"its regular expressions expand to more than {MAX_PATTERN_PARTS:,} parts; use smaller counts"
        )
    components = _components(graph)
    expanded: dict[Subschema, int] = {}
    for component in components:  # A component comes after all those that it references.
        total = sum(_of_node(node, expanded) for node in component)
        expanded |= dict.fromkeys(component, total)
        if total > MAX_EXPANDED_SUBSCHEMAS:
            raise InvalidSchema(_TOO_MANY_SUBSCHEMAS)
    _check_in_place(graph)
    recursive = any(len(component) > 1 for component in components) or any(node in node.parts() for node in graph.nodes)
    return Size(expanded[graph.root], recursive or any(node.revisits for node in graph.nodes))


_PATTERN_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)


def pattern_size(pattern: str) -> int:
    """Return the size of a regular expression with its counts, such as `{3,90}`, written out; capped at the bound."""
    totals, lasts = [0], [0]
    for part in _PATTERN_PART.finditer(pattern):
        text = part.group()
        if part.group(1) is not None:
            times = min(max(int(part.group(1)[:6]), int((part.group(2) or "0")[:6])), MAX_PATTERN_PARTS + 1)
            added = min(lasts[-1] * times, MAX_PATTERN_PARTS + 1) - lasts[-1]
            totals[-1] += max(0, added)
            lasts[-1] += max(0, added)
        elif text == "(":
            totals.append(0)
            lasts.append(0)
        elif text == ")" and len(totals) > 1:
            group = totals.pop()
            lasts.pop()
            totals[-1] += group
            lasts[-1] = group
        else:
            totals[-1] += 1
            lasts[-1] = 1
    return sum(totals)


def _of_node(node: Subschema, expanded: Mapping[Subschema, int]) -> int:
    return node.steps + (1 + node.revisits) * sum(expanded.get(part, part.steps) for part in node.parts())


def _check_in_place(graph: Graph) -> None:
    """Bound the subschemas that apply to one value without going deeper into it.

    A recursion among these would never end, so it is refused.
    """
    expanded: dict[Subschema, int] = {}
    begun: set[Subschema] = set()
    for start in graph.nodes:
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


def _components(graph: Graph) -> list[list[Subschema]]:
    """Return the strongly connected subschemas, referenced ones first (Tarjan's algorithm, without recursion)."""
    number: dict[Subschema, int] = {}
    low: dict[Subschema, int] = {}
    waiting: list[Subschema] = []
    is_waiting: set[Subschema] = set()
    found: list[list[Subschema]] = []
    path = [(graph.root, graph.root.parts())]
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

    def work(self, node: Subschema, value: Any) -> Work:
        if node.is_leaf and node.steps == 1:
            return _LEAF
        pair = (id(node), id(value))
        known = self._known.get(pair)
        if known is not None:
            return known
        self._left -= node.steps
        if self._left < 0:
            raise TooMuchWork("the value is too large for a schema of so many parts")
        inside = sum(self.work(part, value).steps for part in node.alternatives)
        others = [self.work(part, item) for part, item in _parts(node, value)]
        steps = node.steps + inside + sum(each.steps for each in others)
        if node.revisits:
            steps *= 1 + (len(value) if isinstance(value, Mapping | list) else 1)
        alternatives = inside + sum(each.alternatives for each in others)
        found = self._known[pair] = Work(
            steps, alternatives, max(inside, max((each.worst for each in others), default=0))
        )
        return found


def _parts(node: Subschema, value: Any) -> Iterator[tuple[Subschema, Any]]:
    """Yield the other subschemas that apply to a value, each with the part of the value."""
    yield from ((part, value) for part in node.same)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts_of_key(node, value, key, item)
    elif isinstance(value, list):
        yield from zip(node.prefix, value, strict=False)
        yield from ((part, item) for item in value for part in node.items)


def _parts_of_key(node: Subschema, value: Any, key: str, item: Any) -> Iterator[tuple[Subschema, Any]]:
    if key in node.dependent:
        yield node.dependent[key], value
    if key in node.properties:
        yield node.properties[key], item
    for part in (*node.patterns, *node.others):
        yield part, item
    for part in node.names:
        yield part, key


def work_of(graph: Graph, value: Any, most: int) -> Work:
    """Return the work of checking a value against a schema.

    Raises TooMuchWork above `MAX_STEPS`, and for more than `most` pairs of a subschema and a part of the value.
    """
    try:
        work = _Counter(most).work(graph.root, value)
    except RecursionError:
        raise TooMuchWork("schema and value together are too deep") from None
    if work.steps > MAX_STEPS:
        raise TooMuchWork("a check of the value would take too many steps")
    return work
