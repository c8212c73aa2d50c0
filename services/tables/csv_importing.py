"""Import a CSV file into a new table or into one that is there, in one transaction.

Rule 1: all or nothing: an import that was killed has changed nothing. Rows that do not fit are left out and reported.
Rule 2: an import is known by its file and where it goes, so the same one again does nothing.
Rule 3: a file is read twice, first to decide the types of a new table by all rows; rows are written, and refusals
reported, some at a time, so that memory does not grow with the file.
Rule 4: the type of a column is decided by all of its cells: a convention holds for every cell, or the column is text.
One that could be read in two ways, such as 1,234 or 03-04-2024, counts only where a cell proves it.
Rule 5: what a number cannot keep is text: leading zeros, a plus sign, more than 15 digits.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import IO, Any, Literal

import sqlalchemy as sa

from services.tables import catalog, rows, values
from services.tables.csv_reading import CsvFile, Record, unescaped
from services.tables.errors import LimitExceeded, Refused
from services.tables.values import BLANKS, BOOLEANS, NUMBER, Column, ColumnType

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


_BLANK = " \u00a0\u202f"
_OVER_12 = "(?:1[3-9]|[23][0-9])"
CONVENTIONS = (
    Convention("numbers", "number", _plain),
    Convention("dates (2024-03-15)", "date", _ordered(0, 1, 2), re.compile("^[0-9]{4}-")),
    Convention("true and false", "boolean", lambda text: BOOLEANS.get(text.lower())),
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


LISTED_ROWS = 20

Row = tuple[int, dict[str, Any]]


class Import:
    """One import of a file. `types`: those of columns of a new table, by name, in the place of what the cells say.

    `report` gets every refusal, as CSV.
    """

    def __init__(self, file: CsvFile, types: Mapping[str, values.ColumnType], report: IO[str]) -> None:
        """Raises Refused where the header cannot be used."""
        self._file = file
        self._types = {values.same_name(name): kind for name, kind in types.items()}
        self._warnings: list[str] = []
        self._mended = 0
        self._notes: dict[str, str] = {}
        self._conventions: dict[str, Convention] = {}
        self._refused: list[dict[str, Any]] = []
        self._refused_count = 0
        report.truncate(report.seek(0))  # An import that begins again reports again.
        self._report = csv.DictWriter(report, ["line", "column", "code", "reason"])
        self._report.writeheader()
        header = next(iter(file.records()), None)
        if header is None or header.cells is None:
            raise Refused("csv_invalid", "the file has no header that can be read")
        if len(header.cells) > values.MAX_COLUMNS + 1:
            raise LimitExceeded("columns", values.MAX_COLUMNS, len(header.cells))
        self._header = [unescaped(cell.strip(values.BLANKS)) for cell in header.cells]
        self._names = list(self._header)

    def run(
        self, connection: sa.Connection, tenant: str, table_id: str | None, name: str, description: str
    ) -> dict[str, Any]:
        """Import, and return the report. Raises Refused."""
        if table_id is None:
            table = catalog.create(connection, tenant, name, description, self._new_columns())
        else:
            table = catalog.find(connection, tenant, table_id, locked=True)
        of = self._columns(table)
        before, batch = table.row_count, list[dict[str, Any]]()
        for record in self._rows():
            cells = self._cells(record, of, table)
            if cells is not False:
                batch.append(cells)
            if len(batch) == catalog.BATCH_ROWS:
                table = rows.insert(connection, table, batch)
                batch = []
        table = rows.insert(connection, table, batch)
        warned = [f"value_coerced: {self._mended} cells were mended to an option"] if self._mended else []
        return {
            "table_id": table.table_id,
            "name": table.name,
            "created": table_id is None,
            "version": table.version,
            "encoding": self._file.encoding,
            "delimiter": self._file.delimiter,
            "imported": table.row_count - before,
            "refused": self._refused_count,
            "mended": self._mended,
            "refused_rows": self._refused,
            "columns": [{"name": c.name, "type": c.type, "note": self._notes.get(c.name, "")} for c in of if c],
            "warnings": self._warnings + warned,
            "repeated": False,
        }

    def _rows(self) -> Iterator[Record]:
        found = iter(self._file.records())
        next(found)
        return found

    def _new_columns(self) -> list[Column]:
        evidence = [Evidence() for _ in self._header]
        for record in self._rows():
            for seen, cell in zip(evidence, record.cells or (), strict=False):
                seen.see(cell, record.line)
        used: set[str] = set()
        for at, given in enumerate(self._header):
            name, number = given or f"Column {at + 1}", 2
            while values.same_name(name) in used:
                name, number = f"{given or 'Column'} ({number})", number + 1
            if not given and not evidence[at].count:
                self._names[at] = ""
                continue
            used.add(values.same_name(name))
            if name != given:
                self._warnings.append(f"column {at + 1} {given!r} is called {name!r}")
            self._names[at] = name
        if len(used) > values.MAX_COLUMNS:
            raise LimitExceeded("columns", values.MAX_COLUMNS, len(used))
        return [self._new_column(name, seen) for name, seen in zip(self._names, evidence, strict=True) if name]

    def _new_column(self, name: str, evidence: Evidence) -> Column:
        if len(name) > values.MAX_NAME_CHARACTERS or "\0" in name:
            raise Refused("csv_invalid", f"the column name {name[:50]!r} has more than 200 characters, or U+0000")
        stated = self._types.get(values.same_name(name))
        if stated == "select":
            raise Refused("csv_invalid", f"{name}: import it as text, then make it a select with its options", name)
        convention = evidence.convention()
        if stated is None and convention is not None:
            self._conventions[name] = convention
        if stated is None:
            self._notes[name] = evidence.note()
        return Column(catalog.new_column_id(), name, stated or (convention.type if convention else "text"))

    def _columns(self, table: catalog.Table) -> list[Column | None]:
        """Return the column of each cell; None for one without a name."""
        found: list[Column | None] = []
        for at, name in enumerate(self._names):
            column = table.column(name) if name else None
            if column is not None and column in found:
                raise Refused("csv_invalid", f"two columns of the file are {column.name!r}: {at + 1} is the second")
            found.append(column)
        return found

    def _cells(self, record: Record, of: list[Column | None], table: catalog.Table) -> dict[str, Any] | Literal[False]:
        """Return the cells of a row; False if it was refused."""
        given = record.cells
        if given is None:
            return self._refuse(record.line, "", "csv_invalid", "its quotes are malformed")
        extra = [at for at, cell in enumerate(given) if cell and (at >= len(of) or of[at] is None)]
        if extra:
            reason = f"too many cells: {extra[0] + 1}, where the header names {len(self._header)}"
            return self._refuse(record.line, "", "csv_invalid", reason)
        try:
            read = [(column, self._read(column, cell)) for column, cell in zip(of, given, strict=False) if column]
            cells, mended = values.checked(table.columns, read, whole=True)
        except Refused as error:
            return self._refuse(record.line, error.field, error.code, error.reason)
        if mended:
            selects = {each.name for each in table.columns if each.type == "select"}
            self._mended += len(selects.intersection(mended))
        return cells

    def _read(self, column: Column, cell: str) -> Any:
        convention = self._conventions.get(column.name)
        text = cell.strip(values.BLANKS)
        if convention is not None and text:
            return convention.read(text)
        return unescaped(cell) if column.is_text else text

    def _refuse(self, line: int, column: str, code: str, reason: str) -> Literal[False]:
        refusal = {"line": line, "column": column, "code": code, "reason": reason[:500]}
        if self._refused_count < LISTED_ROWS:
            self._refused.append(refusal)
        self._refused_count += 1
        self._report.writerow(refusal)
        return False
