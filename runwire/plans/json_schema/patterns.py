"""Regular expressions of `patternProperties`, matched in linear time.

Pydantic matches with Rust's `regex`, which never backtracks; Python's `re` may take exponential time. A pattern still
takes time and memory by its size, and each match by the size of both: both are counted in steps.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import SchemaError, SchemaValidator, core_schema

from .steps import Steps

MAX_PATTERN_CHARACTERS = 1_000
MAX_COMPILING_STEPS = 50_000
"""What would take more is not compiled."""
_COMPILING = 100
_OF_A_CLASS = 300
"""Steps for compiling a class of characters: a table of Unicode."""
_OF_MANY = 2
"""Steps for compiling what takes almost every character."""
_STATES_PER_STEP = 250
"""Parts of a pattern that are compared with one character in the time of a step."""
_CLASSES = re.compile(r"\\[dDsSwWpP]")
_MANY = re.compile(r"[.]|\[\^")
_COUNTED = re.compile(r"[{](\d+)(?:,(\d*))?[}]")


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A compiled pattern. `size`: its parts, with counted repetitions written out."""

    matches: Callable[[str], bool]
    size: int


class Patterns:
    """The patterns of one check, each compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compiled: dict[str, _Pattern | None] = {}

    def match(self, pattern: str, name: str) -> bool | None:
        """Whether a pattern is found in a name; None: it cannot be matched in linear time, or is too large."""
        self._steps.take()
        if pattern not in self._compiled:
            self._compiled[pattern] = self._compile(pattern)
        compiled = self._compiled[pattern]
        if compiled is None:
            return None
        self._steps.take(compiled.size * len(name) // _STATES_PER_STEP)
        return compiled.matches(name)

    def _compile(self, pattern: str) -> _Pattern | None:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            return None
        repeated = math.prod(max(1, int(most or least)) for least, most in _COUNTED.findall(pattern))
        tables = _OF_A_CLASS * len(_CLASSES.findall(pattern)) + _OF_MANY * len(_MANY.findall(pattern))
        steps = _COMPILING + (len(pattern) + tables) * repeated
        if steps > MAX_COMPILING_STEPS:
            return None
        self._steps.take(steps)
        try:
            validator = SchemaValidator(core_schema.str_schema(pattern=pattern))
        except (SchemaError, ValueError):
            return None
        return _Pattern(validator.isinstance_python, len(pattern) * repeated)
