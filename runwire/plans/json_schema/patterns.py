"""Regular expressions of `patternProperties`, matched in linear time.

Pydantic matches with Rust's `regex`, which never backtracks; Python's `re` may take exponential time.
"""

import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from .steps import Steps

MAX_PATTERN_CHARACTERS = 1_000
_COMPILING = 100
"""Steps that compiling a pattern counts as, beside one for each of its characters."""
_OF_A_CLASS = 300
"""Steps for each class of characters: it is a table of Unicode."""
_OF_REPETITIONS = 5_000
"""Steps for counted repetitions and what is not ASCII: a large pattern takes a tenth of a second, and megabytes."""
_CLASS = re.compile(r"\\[dDsSwWpPbB]")
_REPETITIONS = re.compile(r"[{]|[(][?]|[^\x00-\x7f]")


class Patterns:
    """The patterns of one check, each compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compiled: dict[str, Callable[[str], bool] | None] = {}

    def match(self, pattern: str, name: str) -> bool | None:
        """Whether a pattern is found in a name; None: it cannot be matched in linear time, or is too long."""
        self._steps.take(1 + len(name) // 1000)
        if pattern not in self._compiled:
            self._steps.take(_cost_of(pattern))
            self._compiled[pattern] = _compiled(pattern)
        matches = self._compiled[pattern]
        return None if matches is None else matches(name)


def _cost_of(pattern: str) -> int:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return 1  # It is not compiled.
    classes = len(_CLASS.findall(pattern))
    return _COMPILING + len(pattern) + _OF_A_CLASS * classes + (_OF_REPETITIONS if _REPETITIONS.search(pattern) else 0)


def _compiled(pattern: str) -> Callable[[str], bool] | None:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except (SchemaError, ValueError):
        return None
