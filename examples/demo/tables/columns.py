"""Read a CSV or TSV file into typed columns. Blank cells are None."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

MAX_FILE_BYTES = 20_000_000
MAX_NUMBER_CHARACTERS = 20

_PERIOD = re.compile(r"\d{4}(-(Q[1-4]|\d{2}(-\d{2})?))?")
_ENGLISH = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")


class Unclear(Exception):
    """The question cannot be computed from this table; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Cells are Decimal in a number column, text in others, None where blank."""

    name: str
    kind: Literal["number", "period", "text"]
    cells: list[Any]


def read_table(file: str, folder: Path) -> dict[str, Column]:
    """Read a CSV or TSV file of the folder into typed columns. Raises Unclear."""
    try:
        path = (folder / file).resolve()  # Follows symbolic links, so that none leads out.
        size = (
            path.stat().st_size
            if path.is_relative_to(folder) and path.suffix.lower() in {".csv", ".tsv"} and path.is_file()
            else None
        )
    except (OSError, ValueError):  # A name too long, with a NUL, or of a loop of links.
        size = None
    if size is None or size > MAX_FILE_BYTES:
        there = ", ".join(sorted(str(p.relative_to(folder)) for p in folder.rglob("*.[ct]sv")))
        raise Unclear(
            f"{file[:80]!r} is no CSV or TSV file of the data folder below {MAX_FILE_BYTES // 1_000_000} MB; "
            f"there are: {there}"
        )
    try:
        rows = list(_rows(path))
    except csv.Error as error:
        raise Unclear(f"{file!r} cannot be read: {error}") from error
    if len(rows) < 2:
        raise Unclear(f"{file!r} has no rows")
    names = [name.strip() for name in rows[0]]
    return {
        name: _column(name, [row[at].strip() if at < len(row) else "" for row in rows[1:]])
        for at, name in enumerate(names)
        if name
    }


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        head = lines.readline()
        lines.seek(0)
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
        yield from (row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row))


def _column(name: str, cells: list[str]) -> Column:
    filled = [cell for cell in cells if cell]
    a_year = re.search(r"year|period|date", name, re.IGNORECASE) is not None
    if filled and all(_PERIOD.fullmatch(cell) and (a_year or len(cell) > 4) for cell in filled):
        return Column(name, "period", [cell or None for cell in cells])
    numbers = [number(cell) for cell in cells]
    if filled and sum(value is not None for value in numbers) >= 0.9 * len(filled):
        return Column(name, "number", numbers)
    return Column(name, "text", [cell or None for cell in cells])


def number(cell: str) -> Decimal | None:
    """Read a number as people write it: 1234.5, 1,234.50, € 1 234, 12%. None for anything else."""
    text = re.sub(r"[\s$€£%]", "", cell)  # \s covers the no-break spaces that separate thousands.
    if _ENGLISH.fullmatch(text):
        text = text.replace(",", "")
    return Decimal(text) if _PLAIN.fullmatch(text) and len(text) <= MAX_NUMBER_CHARACTERS else None
