"""Say in one sentence why a value does not fit a model: which field, and what it should be.

Never with the value itself, which may be secret or long.
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

MAX_FAULTS = 5
"""More are not described."""


def dotted(path: tuple[int | str, ...]) -> str:
    """Return the path of a field, `limits.max_steps`."""
    return ".".join(map(str, path))


def describe(
    error: ValidationError, *, limit: int | None = MAX_FAULTS, name_of: Callable[[tuple[int | str, ...]], str] = dotted
) -> str:
    """Return `field: what it should be` for each of the first `limit` faults. `name_of`: the name of a path."""
    faults: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)[:limit]
    named = ((name_of(fault["loc"]), _in_words(fault["type"], fault["msg"])) for fault in faults)
    return "; ".join(f"{name}: {message}" if name else message for name, message in named)


def _in_words(kind: str, message: str) -> str:
    return "there is no such field" if kind == "extra_forbidden" else message
