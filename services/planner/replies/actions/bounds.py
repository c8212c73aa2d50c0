"""How much may stand beside the text of an answer; what is above is left out with a warning.

It is done here, where a large reply is read in a thread: the payload is built and written in the loop, where other runs
wait for it.
"""

from typing import Any

MAX_ITEMS = 1000
"""Of a list of sources, of suggested actions or of warnings: the first ones are kept."""
MAX_VALUES = 20_000
"""Fields, items and values of all fields together: a field that exceeds it is dropped."""
_LISTS = ("sources", "suggested_actions", "warnings")
_LONGEST_KEY = 40


def bounded(args: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The arguments of a final response as far as they are kept: the same ones where all of them are."""
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
    """How many values there are in one, itself included; counts little further than `most`."""
    count, waiting = 1, [value]
    while waiting and count <= most:
        box = waiting.pop()
        inner = box.values() if isinstance(box, dict) else box if isinstance(box, list) else ()
        count += len(inner)
        waiting += [item for item in inner if isinstance(item, dict | list)]
    return count
