"""Templates (`$N.output.field.field`, always a whole string): their grammar, and the values that replace them.

Rule 1: digits, the word `output` and the dots are ASCII; a segment has neither dots nor whitespace.
Rule 2: a string that looks like a template and is none is an error, not a text (`is_candidate`).
Rule 3: a template inside a longer string is text, and so is a key.
Rule 4: all templates of a call are replaced in one pass: a value that looks like a template is data. Values keep their
types; they are inserted as they are, not copied, so nobody may change them.
Rule 5: nothing recurses, and the size of what is inserted is bounded before anything is built of it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runwire.plans.texts import shortened

Key = str | int
"""The name of a member, or the number of an item."""


@dataclass(slots=True, eq=False, repr=False)
class Container:
    """An object or list in the arguments of a call. `parent`, `key`: where it is; the arguments have no parent."""

    parent: "Container | None" = None
    key: Key = ""

    def dotted(self, key: Key) -> str:
        """Return the path of a value in this container: `refs[1].url`."""
        keys = [key]
        container = self
        while container.parent is not None:
            keys.append(container.key)
            container = container.parent
        text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in reversed(keys))
        return text.removeprefix(".")


def items_of(value: Any) -> Iterable[tuple[Key, Any]]:
    """Return the members of an object, or the items of a list."""
    return value.items() if isinstance(value, Mapping) else enumerate(value)


def marked_strings(arguments: Any) -> Iterator[tuple[Container, Key, str]]:
    """Yield each string value with a `$` in it, with its container and its key there, in order."""
    stack = [(Container(), iter(items_of(arguments)))]
    while stack:
        container, items = stack[-1]
        for key, value in items:
            if isinstance(value, str):
                if "$" in value:
                    yield container, key, value
            elif value and isinstance(value, dict | list):
                stack.append((Container(container, key), iter(items_of(value))))
                break
        else:
            stack.pop()


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested more than so many levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
    return bool(level)


def json_size(value: Any) -> int | None:
    """Return the bytes of a value as compact JSON; None: it has too long a number, or is nested too deep."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return len(text.encode("utf-8", "surrogatepass"))


MAX_INDEX_DIGITS = 100
"""A number of more digits is not read exactly: no plan has as many calls."""

_MAX_ITEM_DIGITS = 9

_TEMPLATE = re.compile(r"\$([0-9]++)\.output\.([^.\s]++(?>\.[^.\s]++)*+)")
_NAME_AFTER_NUMBER = re.compile(r"\$[0-9]++\.[A-Za-z_][A-Za-z0-9_.\[\]-]*+")
_EMBEDDED = re.compile(r"\$[0-9]++\.output\.[^.\s]")


@dataclass(frozen=True, slots=True)
class Template:
    """A reference to the value at `path` in the result of call `index`, counted from 0."""

    index: int
    path: tuple[str, ...]


def parse_template(text: str) -> Template | None:
    """Return the template that a string is; None: it is none.

    A number of more than 100 digits counts as 10**100.
    """
    found = _TEMPLATE.fullmatch(text) if text.startswith("$") else None
    if found is None:
        return None
    digits = found[1].lstrip("0") or "0"
    index = int(digits) if len(digits) <= MAX_INDEX_DIGITS else 10**MAX_INDEX_DIGITS
    return Template(index, tuple(found[2].split(".")))


def is_candidate(text: str) -> bool:
    """Whether a string is meant as a template: it has to be one."""
    return text.startswith("$") and (".output." in text or _NAME_AFTER_NUMBER.fullmatch(text) is not None)


def holds_embedded(text: str) -> bool:
    """Whether a longer string contains a template, which is not resolved there."""
    return _EMBEDDED.search(text) is not None


def is_index(segment: str) -> bool:
    """Whether a segment of a path is the number of an item, of at most 9 digits."""
    return len(segment) <= _MAX_ITEM_DIGITS and segment.isascii() and segment.isdecimal()


Reference = Callable[[int, tuple[str, ...], Any, tuple[str, ...]], Any]
"""Called with the number of a call, a path in its output, the value there, and the rest of the template's path. What it
returns takes the template's place, unless it is None."""


def holds_templates(arguments: Mapping[str, Any]) -> bool:
    """Whether a value at any depth is a template."""
    return any(parse_template(text) is not None for _, _, text in marked_strings(arguments))


class MissingOutputField(Exception):
    """The output of an earlier call lacks what a template refers to."""

    def __init__(self, index: int, field: str, template: str, argument: str) -> None:
        """`field`: dotted path up to and including the missing segment; `index`: of the call that lacks it."""
        super().__init__(f"the output of call {index} has no {shortened(field)}, which {shortened(template)} refers to")
        self.index = index
        self.field = field
        self.template = template
        self.argument = argument


class ArgumentsTooLarge(Exception):
    """The values that templates insert are together larger than allowed."""

    def __init__(self, limit: int) -> None:
        """`limit`: in bytes of compact JSON."""
        super().__init__(f"the values that templates insert have more than {limit:,} bytes together")
        self.limit = limit


def resolve(
    arguments: Mapping[str, Any],
    outputs: Sequence[Any],
    reference: Reference | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Return the arguments with each template replaced. `outputs`: of the calls so far, in order.

    Raises MissingOutputField, and ArgumentsTooLarge if the inserted values have more than `max_bytes` together.
    """
    result = dict(arguments)
    copies: dict[Container, Any] = {}
    sizes = _Sizes(max_bytes)
    for container, key, text in marked_strings(arguments):
        template = parse_template(text)
        if template is None:
            continue
        try:
            value = _value_at(template, outputs, reference)
        except _Missing as missing:
            raise MissingOutputField(template.index, missing.field, text, container.dotted(key)) from None
        sizes.add(value)
        _copy_of(container, result, copies)[key] = value
    return result


class _Missing(Exception):
    def __init__(self, path: Sequence[str]) -> None:
        super().__init__()
        self.field = ".".join(path)


def _value_at(template: Template, outputs: Sequence[Any], reference: Reference | None) -> Any:
    """Return what a template refers to. An explicit null is a value."""
    index, path = template.index, template.path
    if index >= len(outputs):
        raise _Missing(path[:1])
    value = outputs[index]
    for depth in range(len(path) + 1):
        instead = reference(index, path[:depth], value, path[depth:]) if reference else None
        if instead is not None:
            return instead
        if depth == len(path):
            break
        segment = path[depth]
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and is_index(segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            raise _Missing(path[: depth + 1])
    return value


def _copy_of(container: Container, result: Any, copies: dict[Container, Any]) -> Any:
    """Return the copy of a container that the result holds; the copies of those around it are made first."""
    uncopied = []
    while container.parent is not None and container not in copies:
        uncopied.append(container)
        container = container.parent
    copy: Any = result if container.parent is None else copies[container]
    for each in reversed(uncopied):
        copy[each.key] = copies[each] = copy[each.key].copy()
        copy = copies[each]
    return copy


class _Sizes:
    """The size of all inserted values together; each distinct value is measured once."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        self._known: dict[int, tuple[int, Any]] = {}
        """Identity of a value -> its size, and the value, so that its identity stays its own."""

    def add(self, value: Any) -> None:
        if self._limit is None:
            return
        key = id(value)
        if key not in self._known:
            size = json_size(value)
            if size is None:
                raise ArgumentsTooLarge(self._limit)
            self._known[key] = size, value
        self._total += self._known[key][0]
        if self._total > self._limit:
            raise ArgumentsTooLarge(self._limit)
