"""Which subschemas apply to a value: all of `allOf` and `$ref`, and those members of a union that may fit.

A member is excluded only when it certainly does not fit: another type, a different constant, a missing required name.
Keywords that are not evaluated (`pattern`, `minimum`, `not` …) count as fitting, so doubt leads to more annotations,
never to fewer. When no member fits, all of them apply. When the fitting members do not declare a name, the excluded
ones decide.

Rule: the work is linear in the value, whatever the schema is. A value beyond the bound is hidden as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, NamedTuple

from services.shared.redaction.annotations import Node, Schema, read_annotations
from services.shared.redaction.placeholders import is_placeholder

MAX_DEPTH = 64
"""Levels of nesting that are followed. A deeper value is hidden as a whole if it could be annotated."""

_FIRST_CHECKS = 100_000
_CHECKS_PER_VALUE = 100
"""Checks of a subschema against a value: this many at first, and this many more for each part of the value."""
_UNKNOWN = Node(unknown=True, hides=True)

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
