"""CSV files: read as they are found, imported as a whole or not at all, exported so that an import gives the same.

In a spreadsheet a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return is a formula. An export puts an
apostrophe before it, and an import takes that away again. Numbers are no formulas, and stay.
"""

import re

FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER_LIKE = re.compile(r"[+-][0-9][0-9.,]*")


def escaped(text: str) -> str:
    """Return a text as an export writes it."""
    return f"'{text}" if FORMULA.match(text) and not _NUMBER_LIKE.fullmatch(text) else text


def unescaped(text: str) -> str:
    """Return the text that an export has written so."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text
