"""Columns, and the values of their cells: what fits a type, and what is mended on the way.

Rule 1: a value is kept exactly or refused. A number is a double, and an integer has at most 53 bits.
Rule 2: an empty text is no value, in a column of any type.
Rule 3: what a person or a model clearly means is mended, and reported: `"42"` as a number, `Yes`, an option in another
case.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from services.tables.errors import LimitExceeded, Refused

ColumnType = Literal["text", "number", "date", "boolean", "select"]
TYPES: tuple[ColumnType, ...] = ("text", "number", "date", "boolean", "select")
BLANKS = "\t\n\r "
"""What counts as blank: these four characters alone."""
MAX_NAME_CHARACTERS, MAX_DESCRIPTION_CHARACTERS = 200, 2_000
MAX_COLUMNS, MAX_OPTIONS = 200, 500
MAX_CELL_BYTES, MAX_ROW_BYTES = 64 << 10, 256 << 10

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number of JSON, and nothing else that `float` takes."""
_MAX_INTEGER = 1 << 53
_DATE, _DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), re.compile(r"([0-9-]{10})[T ][0-9:.,+Z-]+")
BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    column_id: str
    name: str
    type: ColumnType
    required: bool = False
    options: tuple[str, ...] = ()
    filter_display: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether the cells are texts, which are found in any case."""
        return self.type in {"text", "select"}


def fold(text: str) -> str:
    """Return what texts are compared by where case does not count, the same on every database."""
    return text.casefold()


def same_name(name: str) -> str:
    """Return what two names have in common that count as the same."""
    return fold(name.strip(BLANKS))


def column_of(columns: Sequence[Column], name: str) -> Column | None:
    """Return the column with this id or name, exactly, else in another case."""
    exact = next((each for each in columns if name in {each.column_id, each.name}), None)
    return exact or next((each for each in columns if same_name(each.name) == same_name(name)), None)


def converted(column: Column, value: Any) -> tuple[Any, bool]:
    """Return the value as its column keeps it, and whether it was mended.

    Raises Refused, code `value_invalid` or `option_invalid`; the field is the column's name.
    """
    raw = value.strip(BLANKS) if isinstance(value, str) and column.type != "text" else value
    if raw is None or raw == "":
        return None, False
    try:
        found = _CONVERSIONS[column.type](column, raw)
    except (ValueError, OverflowError) as error:
        code = "option_invalid" if column.type == "select" else "value_invalid"
        raise Refused(code, f"{column.name}: {error}", column.name) from None
    is_whole = type(value) is int and type(found) is float
    return found, (type(found) is not type(value) and not is_whole) or found != value


def cells_of(columns: Sequence[Column], given: Mapping[str, Any], *, whole: bool) -> tuple[dict[str, Any], list[str]]:
    """Return cells by column id, and the names of the columns whose values were mended.

    `whole`: of a new row, in which required columns have a value. Raises Refused, with the column as its field.
    """
    pairs: list[tuple[Column, Any]] = []
    for name, value in given.items():
        column = column_of(columns, name)
        if column is None:
            known = ", ".join(each.name for each in columns[:20])
            raise Refused("column_unknown", f"there is no column {name[:100]!r}; there are: {known}", name)
        pairs.append((column, value))
    return checked(columns, pairs, whole=whole)


def checked(
    columns: Sequence[Column], given: Iterable[tuple[Column, Any]], *, whole: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the same for values by column."""
    cells: dict[str, Any] = {}
    mended: list[str] = []
    for column, value in given:
        if column.column_id in cells:
            raise Refused("value_invalid", f"the column {column.name} is given twice", column.name)
        cells[column.column_id], changed = converted(column, value)
        if changed:
            mended.append(column.name)
    for column in columns:
        if column.required and cells.get(column.column_id) is None and (whole or column.column_id in cells):
            raise Refused("required_value_missing", f"{column.name} needs a value", column.name)
    size = sum(len(value.encode()) for value in cells.values() if isinstance(value, str))
    if size > MAX_ROW_BYTES:
        raise LimitExceeded("bytes of a row", MAX_ROW_BYTES, size)
    return cells, mended


def _text(column: Column, value: Any) -> str:
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, int | float):
        value = str(shown(_number(column, value)))
    if not isinstance(value, str):
        raise ValueError("a text is needed")  # noqa: TRY004, a refusal like the others
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("a text holds neither U+0000 nor half a character")
    if (size := len(value.encode())) > MAX_CELL_BYTES:
        raise ValueError(f"a cell has at most {MAX_CELL_BYTES:,} bytes, not {size:,}")
    return value


def _number(_column: Column, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a number is needed")  # noqa: TRY004, a refusal like the others
    if isinstance(value, str):
        if not NUMBER.fullmatch(value) or len(value) > 400:  # noqa: PLR2004, no double needs more digits
            raise ValueError(f"{value[:50]!r} is no number, such as -12.5")
        value = float(value) if set(value) & set(".eE") else int(value)
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ValueError("an integer beyond 2^53 cannot be kept exactly: make the column a text")
    if not math.isfinite(value):
        raise ValueError("a number is finite")
    return float(value) + 0.0


def _date(_column: Column, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a date is needed, such as 2024-03-15")  # noqa: TRY004, a refusal like the others
    if found := _DATETIME.fullmatch(value):
        datetime.fromisoformat(value)
        value = found[1]
    if not _DATE.fullmatch(value):
        raise ValueError(f"{value[:50]!r} is no date, such as 2024-03-15")
    return date.fromisoformat(value).isoformat()


def _boolean(_column: Column, value: Any) -> bool:
    found = BOOLEANS.get(fold(value)) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError(f"{str(value)[:50]!r} is neither true nor false")  # noqa: TRY004, a refusal like the others
    return found


def _select(column: Column, value: Any) -> str:
    text = _text(column, value)
    found = text if text in column.options else {fold(each): each for each in column.options}.get(fold(text))
    if found is None:
        raise ValueError(f"{text[:50]!r} is none of its options: {', '.join(column.options[:20])}")
    return found


_CONVERSIONS = {"text": _text, "number": _number, "date": _date, "boolean": _boolean, "select": _select}


def shown(value: Any) -> Any:
    """Return a cell as JSON: a whole number without a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_INTEGER else value
