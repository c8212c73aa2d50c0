"""Limits the fields beside the text of an answer. What exceeds a limit is left out, with a warning.

This is done while the reply is parsed, because a large reply is parsed in a thread. The payload is built later, in the
event loop, where other runs would wait.
"""

from typing import Any

MAX_ITEMS = 1000
"""Items that are kept of a list of sources, suggested actions or warnings: the first ones."""
MAX_VALUES = 20_000
"""Limit of the values of all fields together, nested ones included. A field that exceeds it is dropped."""
_LISTS = ("sources", "suggested_actions", "warnings")
_LONGEST_KEY = 40


def bounded(args: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a final response within the limits. Adds a warning for what is left out."""
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    left = MAX_VALUES
    for key, given in args.items():
        value = given
        if key in _LISTS and isinstance(value, list) and len(value) > MAX_ITEMS:
            warnings.append(f"`{key}` was cut: it had {len(value):,} items, and the first {MAX_ITEMS:,} are kept")
            value = value[:MAX_ITEMS]
        count = _count(value, left)
        if count > left:
            dropped.append(key)
            continue
        left -= count
        kept[key] = value
    if dropped:
        more = f" and {len(dropped) - 1:,} more fields were" if len(dropped) > 1 else " was"
        warnings.append(
            f"`{dropped[0][:_LONGEST_KEY]}`{more} dropped: an answer may have {MAX_VALUES:,} values beside its text"
        )
    return kept


def _count(value: Any, most: int) -> int:
    """Return the number of values in a value, itself included. Counting stops soon after `most`."""
    count, waiting = 1, [value]
    while waiting and count <= most:
        box = waiting.pop()
        inner = box.values() if isinstance(box, dict) else box if isinstance(box, list) else ()
        count += len(inner)
        waiting += [item for item in inner if isinstance(item, dict | list)]
    return count
