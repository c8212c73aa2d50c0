"""Write rows as CSV (RFC 4180, UTF-8), some at a time."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from services.tables import queries, values
from services.tables.catalog import BATCH_ROWS, Table
from services.tables.csv_files import escaped

BYTE_ORDER_MARK = "\ufeff".encode()


def written(connection: sa.Connection, table: Table, selection: queries.Selection, *, bom: bool) -> Iterator[bytes]:
    """Return the file piece by piece: its header, then batches of rows. Excel reads UTF-8 by the byte order mark."""
    of = queries.chosen(table, selection.columns)
    if bom:
        yield BYTE_ORDER_MARK
    yield _lines([[escaped(each.name) for each in of]])
    for batch in queries.pages(connection, table, selection, BATCH_ROWS):
        yield _lines([[_cell(row[each.column_id]) for each in of] for row in batch])


def _lines(of: list[list[str]]) -> bytes:
    found = io.StringIO(newline="")
    csv.writer(found).writerows(of)
    return found.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(value) if isinstance(value, str) else "" if value is None else str(values.shown(value))
