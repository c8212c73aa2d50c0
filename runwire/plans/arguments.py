"""The arguments of a call: where its strings are, how deep and how large they are. Nothing recurses."""

import json
from collections.abc import Iterable, Iterator, Mapping
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
