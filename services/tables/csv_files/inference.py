"""Decide what type a column of a CSV file has, by all of its cells.

Rule 1: a convention holds for every cell of a column, or the column is text. One that could be read in two ways, such
as 1,234 or 03-04-2024, counts only where a cell proves it.
Rule 2: what a number cannot keep is text: leading zeros, a plus sign, more than 15 digits.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from services.tables.values import BLANKS, NUMBER, ColumnType

_MAX_DIGITS = 15
_DATE = re.compile(r"([0-9]{1,4})([-/.])([0-9]{1,2})\2([0-9]{1,4})")


def _plain(text: str) -> float | None:
    digits = sum(character.isdigit() for character in text.lower().partition("e")[0].lstrip("-0."))
    found = float(text) if NUMBER.fullmatch(text) and digits <= _MAX_DIGITS else None
    return found if found is not None and math.isfinite(found) else None


def _grouped(thousands: str, decimal: str) -> Callable[[str], float | None]:
    form = re.compile(rf"-?(?:0|[1-9][0-9]{{0,2}}(?:[{thousands}][0-9]{{3}})+|[1-9][0-9]*)(?:[{decimal}][0-9]+)?")
    gone = re.compile(f"[{thousands}]")

    def read(text: str) -> float | None:
        return _plain(re.sub(f"[{decimal}]", ".", gone.sub("", text))) if form.fullmatch(text) else None

    return read


def _ordered(year: int, month: int, day: int) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        found = _DATE.fullmatch(text)
        parts = (found[1], found[3], found[4]) if found else ()
        if not parts or len(parts[year]) != 4:  # noqa: PLR2004, digits of a year
            return None
        try:
            return date(int(parts[year]), int(parts[month]), int(parts[day])).isoformat()
        except ValueError:
            return None

    return read


@dataclass(frozen=True)
class Convention:
    """A way to write values. `read` gives None for what is not written so; `proof`: found in a cell that is no other's.

    A convention that is never proved does not hold; without `proof` it needs none.
    """

    name: str
    type: ColumnType
    read: Callable[[str], Any]
    proof: re.Pattern[str] | None = None


_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_BLANK = " \u00a0\u202f"
_OVER_12 = "(?:1[3-9]|[23][0-9])"
CONVENTIONS = (
    Convention("numbers", "number", _plain),
    Convention("dates (2024-03-15)", "date", _ordered(0, 1, 2), re.compile("^[0-9]{4}-")),
    Convention("true and false", "boolean", lambda text: _BOOLEANS.get(text.lower())),
    Convention("numbers such as 1,234.5", "number", _grouped(",", "."), re.compile(r",.*\.")),
    Convention("numbers such as 1.234,5", "number", _grouped(".", ","), re.compile(r"\..*,")),
    Convention("numbers such as 1 234,5", "number", _grouped(_BLANK, ","), re.compile(f"[{_BLANK}].*,")),
    Convention("dates, the day first", "date", _ordered(2, 1, 0), re.compile(rf"^{_OVER_12}\D")),
    Convention("dates, the month first", "date", _ordered(2, 0, 1), re.compile(rf"^[0-9]+\D{_OVER_12}\D")),
)


@dataclass
class Evidence:
    """What the cells of a column say so far."""

    open: list[Convention] = field(default_factory=lambda: list(CONVENTIONS))
    proved: set[str] = field(default_factory=set)
    ended_at: int | None = None
    """The line of the cell that no convention is left for."""
    count: int = 0

    def see(self, text: str, line: int) -> None:
        """Take a cell."""
        text = text.strip(BLANKS)
        if not text or not self.open:
            return
        self.count += 1
        self.open = [each for each in self.open if each.read(text) is not None]
        self.proved |= {each.name for each in self.open if each.proof is not None and each.proof.search(text)}
        if not self.open:
            self.ended_at = line

    def convention(self) -> Convention | None:
        """Return the one that holds for all cells; None: they are texts."""
        held = [each for each in self.open if each.proof is None or each.name in self.proved]
        return held[0] if held and self.count else None

    def note(self) -> str:
        """Say why the column has its type, where that could surprise."""
        found = self.convention()
        if found is not None:
            return "" if found is CONVENTIONS[0] else found.name
        if self.open and self.count:
            return f"text, since nothing proves that it holds {self.open[0].name}"
        return f"text, since line {self.ended_at} does not fit the lines before" if self.count > 1 else ""
