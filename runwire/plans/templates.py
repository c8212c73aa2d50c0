"""The grammar of templates: `$N.output.field.field`, a whole string.

Rule 1: digits, the word `output` and the dots are ASCII; a segment has neither dots nor whitespace.
Rule 2: a string that looks like a template and is none is an error, not a text (`is_candidate`).
Rule 3: a template inside a longer string is text.

The arguments of a call: where its strings are, how deep and how large they are. Nothing recurses.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Key = str | int
"""The name of a member, or the number of an item."""


class Container:
    """An object or list in the arguments of a call. `parent`, `key`: where it is; the arguments have no parent."""

    __slots__ = ("key", "parent")

    def __init__(self, parent: "Container | None" = None, key: Key = "") -> None:
        self.parent = parent
        self.key = key

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
"""Longer numbers of calls are all the same: no plan has such a call."""

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
