"""Import a CSV file into a new table or into one that is there, in one transaction.

Rule 1: all or nothing: an import that was killed has changed nothing. Rows that do not fit are left out and reported.
Rule 2: an import is known by its file and where it goes, so the same one again does nothing.
Rule 3: a file is read twice, first to decide the types of a new table by all rows; rows are written, and refusals
reported, some at a time, so that memory does not grow with the file.
"""

import csv
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal

import sqlalchemy as sa

from services.tables import catalog, rows, values
from services.tables.csv_files import unescaped
from services.tables.csv_files.inference import Convention, Evidence
from services.tables.csv_files.reading import CsvFile, Record
from services.tables.errors import LimitExceeded, Refused
from services.tables.values import Column

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
            column = values.column_of(table.columns, name) if name else None
            if name and column is None:
                known = ", ".join(each.name for each in table.columns[:20])
                raise Refused("column_unknown", f"{table.name} has no column {name[:100]!r}; it has: {known}", name)
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
