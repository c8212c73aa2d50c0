"""Write rows as CSV (RFC 4180), some at a time: all of them from one state, or a part of the file for each request."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from services.tables import queries, values
from services.tables.catalog import BATCH_ROWS, Table
from services.tables.csv_files import escaped
from services.tables.values import Column

BYTE_ORDER_MARK = "\ufeff"


def written(
    connection: sa.Connection, table: Table, selection: queries.Selection, *, bom: bool
) -> Iterator[tuple[str, int]]:
    """Return the file piece by piece, each with its number of rows. Excel reads UTF-8 by the byte order mark."""
    of = queries.chosen(table, selection.columns)
    yield _header(of, bom=bom), 0
    for batch in queries.pages(connection, table, selection, BATCH_ROWS):
        yield _lines([[_cell(row[each.column_id]) for each in of] for row in batch]), len(batch)


def page(
    connection: sa.Connection, table: Table, selection: queries.Selection, cursor: str | None, *, bom: bool
) -> tuple[str, int, str | None]:
    """Return a part of the file, its number of rows, and the cursor of the next part.

    Raises Refused, also where the columns have changed since the part before.
    """
    of = queries.chosen(table, selection.columns)
    header = _header(of, bom=bom)
    found, following = queries.page(connection, table, selection, BATCH_ROWS, cursor, header)
    text = _lines([[_cell(row[each.column_id]) for each in of] for row in found])
    return (header if cursor is None else "") + text, len(found), following


def _header(of: list[Column], *, bom: bool) -> str:
    return (BYTE_ORDER_MARK if bom else "") + _lines([[escaped(each.name) for each in of]])


def _lines(of: list[list[str]]) -> str:
    found = io.StringIO(newline="")
    csv.writer(found).writerows(of)
    return found.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(value) if isinstance(value, str) else "" if value is None else str(values.shown(value))
