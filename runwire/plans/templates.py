"""The grammar of templates: `$N.output.field.field`, a whole string.

Rule 1: digits, the word `output` and the dots are ASCII; a segment has neither dots nor whitespace.
Rule 2: a string that looks like a template and is none is an error, not a text (`is_candidate`).
Rule 3: a template inside a longer string is text.
"""

import re
from dataclasses import dataclass

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
