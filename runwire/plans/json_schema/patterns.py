"""Regular expressions of `patternProperties`, matched in linear time.

Pydantic matches with Rust's `regex`, which never backtracks; Python's `re` may take exponential time.
"""

from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from .steps import Steps

MAX_PATTERN_CHARACTERS = 1_000
_COMPILING = 5_000
"""Steps that compiling a pattern counts as: a large one takes a tenth of a second, and megabytes."""


class Patterns:
    """The patterns of one check, each compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compiled: dict[str, Callable[[str], bool] | None] = {}

    def match(self, pattern: str, name: str) -> bool | None:
        """Whether a pattern is found in a name; None: it cannot be matched in linear time, or is too long."""
        self._steps.take(1 + len(name) // 1000)
        if pattern not in self._compiled:
            self._steps.take(_COMPILING)
            self._compiled[pattern] = _compiled(pattern)
        matches = self._compiled[pattern]
        return None if matches is None else matches(name)


def _compiled(pattern: str) -> Callable[[str], bool] | None:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except (SchemaError, ValueError):
        return None
