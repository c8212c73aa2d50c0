"""The arguments of a call: where its strings are, how deep and how large they are. Nothing recurses."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Key = str | int
"""The name of a member, or the number of an item."""


class Place:
    """A container in the arguments of a call."""

    __slots__ = ("is_read", "key", "parent", "schema")

    def __init__(self, parent: "Place | None" = None, key: Key = "") -> None:
        self.parent = parent
        self.key = key
        self.schema: Any = None
        """What the tool's schema says of it, where `is_read`."""
        self.is_read = False

    def dotted(self, key: Key) -> str:
        """Return the path of a value in this container: `refs[1].url`."""
        keys = [key]
        place = self
        while place.parent is not None:
            keys.append(place.key)
            place = place.parent
        text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in reversed(keys))
        return text.removeprefix(".")


def items_of(container: Any) -> Iterable[tuple[Key, Any]]:
    """Return the members of an object, or the items of a list."""
    return container.items() if isinstance(container, Mapping) else enumerate(container)


def marked_strings(arguments: Any) -> Iterator[tuple[Place, Key, str]]:
    """Yield each string value with a `$` in it, with its container and its key there, in order."""
    stack = [(Place(), iter(items_of(arguments)))]
    while stack:
        place, items = stack[-1]
        for key, value in items:
            if isinstance(value, str):
                if "$" in value:
                    yield place, key, value
            elif value and isinstance(value, dict | list):
                stack.append((Place(place, key), iter(items_of(value))))
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
