"""Regular expressions in schemas: how large one is, and names matched by those of `patternProperties` in linear time.

Pydantic matches with Rust's `regex`, which never backtracks; Python's `re` may take exponential time. A pattern still
takes time and memory by its size, and each match by the size of both: both are counted in steps.
"""

import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from runwire.plans.json_schema.folding import Steps

MAX_PATTERNS = 100
"""The patterns of one schema that the services accept."""
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
_PART = re.compile(r"\\.|\[(?>\\.|[^\]\\])*+\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)
_COUNT_DIGITS = 6
"""Larger counts are all the same: no pattern may have them."""


def pattern_size(pattern: str, most: int, weigh: Callable[[str], int] = lambda _: 1) -> int:
    """Return the size of a regular expression with its counts, such as `{3,90}`, written out.

    `weigh` returns the size of a character, escape or class. A group counts as at most `most`.
    """
    totals, lasts = [0], [0]
    for part in _PART.finditer(pattern):
        text, least, greatest = part[0], part[1], part[2]
        if least is not None:
            times = max(int(least[:_COUNT_DIGITS]), int((greatest or "0")[:_COUNT_DIGITS]))
            added = max(0, min(lasts[-1] * times, most) - lasts[-1])
            totals[-1] += added
            lasts[-1] += added
        elif text == "(":
            totals.append(0)
            lasts.append(0)
        elif text == ")" and len(totals) > 1:
            group = totals.pop()
            lasts.pop()
            totals[-1] += group
            lasts[-1] = group
        else:
            lasts[-1] = weigh(text)
            totals[-1] += lasts[-1]
    return sum(totals)


def matcher(pattern: str) -> Callable[[str], bool] | None:
    """Return a test of names in linear time; None: the pattern has none."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except (SchemaError, ValueError):
        return None


class Patterns:
    """The patterns of one check, each compiled once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compiled: dict[str, tuple[Callable[[str], bool] | None, int]] = {}
        """Pattern -> its test of names, and its parts."""

    def match(self, pattern: str, name: str) -> bool | None:
        """Whether a pattern is found in a name; None: it cannot be matched in linear time, or is too large."""
        self._steps.take()
        if pattern not in self._compiled:
            self._compiled[pattern] = self._compile(pattern)
        matches, size = self._compiled[pattern]
        if matches is None:
            return None
        self._steps.take(size * len(name) // _STATES_PER_STEP)
        return matches(name)

    def _compile(self, pattern: str) -> tuple[Callable[[str], bool] | None, int]:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            return None, 0
        steps = _COMPILING + pattern_size(
            pattern,
            MAX_COMPILING_STEPS,
            lambda part: len(part) + _OF_A_CLASS * len(_CLASSES.findall(part)) + _OF_MANY * len(_MANY.findall(part)),
        )
        if steps > MAX_COMPILING_STEPS:
            return None, 0
        self._steps.take(steps)
        return matcher(pattern), pattern_size(pattern, MAX_COMPILING_STEPS)
