"""The tools that import and export CSV, and with them all tools of the service.

An export writes rows as CSV (RFC 4180), some at a time: all from one state, or a part of the file for each request.
"""

import csv
import hashlib
import io
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from contracts.artifacts import BY_REFERENCE, ArtifactRef
from contracts.wire.base import PART_BYTES
from runwire import Tool, ToolContext, tool
from services.tables import catalog, queries, rows, schema, values
from services.tables.catalog import BATCH_ROWS, Table
from services.tables.csv_importing import LISTED_ROWS, Import
from services.tables.csv_reading import CsvFile, escaped, opened
from services.tables.database import Database
from services.tables.errors import LimitExceeded, Refused
from services.tables.tools import row_tools
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


_MAX_STREAMED_BYTES = 24 << 20
"""Of an export as an artifact: the pieces of a call have 32 MiB as JSON. Pages have no limit."""
_PIECE_CHARACTERS = 30_000
"""Of the pieces of an artifact: 120 KiB at most, with every character escaped."""


class CsvImport(BaseModel):
    """A file and where it goes: `name` makes a new table, `table_id` names one that is there."""

    model_config = ConfigDict(extra="forbid")

    csv: str | None = Field(default=None, description="the file as text")
    file: ArtifactRef | None = Field(
        default=None, description="the file as an artifact", json_schema_extra={BY_REFERENCE: True}
    )
    name: str | None = None
    description: str = ""
    table_id: str | None = None
    columns: dict[str, values.ColumnType] = Field(
        default_factory=dict, description="types of columns of a new table; the others are decided by all rows"
    )
    encoding: str | None = None
    delimiter: str | None = None
    import_id: str | None = Field(
        default=None, max_length=100, description="a new one imports a file again that was imported already"
    )


class ImportedColumn(BaseModel):
    """A column of an import; `note`: why it has its type."""

    name: str
    type: values.ColumnType
    note: str


class Imported(BaseModel):
    """What came of an import. `refused_rows`: the first of them; where there are more, all are the artifact `report`.

    `repeated`: it was imported before, and nothing was done.
    """

    table_id: str
    name: str
    created: bool
    version: int
    encoding: str
    delimiter: str
    imported: int
    refused: int
    mended: int
    refused_rows: list[dict[str, Any]]
    columns: list[ImportedColumn]
    warnings: list[str]
    repeated: bool


class CsvExport(queries.Selection):
    """Which rows of a table."""

    table_id: str
    bom: bool = Field(default=False, description="begin with a byte order mark, by which Excel knows UTF-8")
    page: bool = Field(default=False, description="return a part of the file as text, in the place of an artifact")
    cursor: str | None = Field(default=None, description="next_cursor of the part before, with the same arguments")


class Exported(BaseModel):
    """A file: the artifact `csv`, or a part of it as text. `columns`: the types, which an import of the file takes."""

    filename: str
    rows: int
    columns: dict[str, values.ColumnType]
    text: str | None = None
    next_cursor: str | None = None


def tools_of(database: Database) -> list[Tool[..., Any]]:
    """Return all tools, on one database."""

    @tool(side_effects="write", idempotent=True, requires_approval=True, timeout_s=300, tags=["tables"])
    def import_csv(given: CsvImport, ctx: ToolContext) -> Imported:
        """Import a CSV file into a new table or one that is there. Rows that do not fit are left out and reported."""
        if (given.csv is None) == (given.file is None) or (given.name is None) == (given.table_id is None):
            raise Refused("csv_invalid", "give one of csv and file, and one of name and table_id")
        with io.BytesIO((given.csv or "").encode()) if given.file is None else tempfile.TemporaryFile() as data:
            digest = hashlib.sha256((given.csv or "").encode())
            for piece in _pieces(given.file, ctx) if given.file is not None else ():
                digest.update(piece)
                data.write(piece)
            file = opened(data, "utf-8" if given.file is None else given.encoding, given.delimiter)
            with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as report:
                found = database.write(
                    lambda connection: _imported(connection, given, ctx.tenant, digest.hexdigest(), file, report)
                )
                if found.refused > LISTED_ROWS and not found.repeated:
                    report.seek(0)
                    _emit(ctx, "report", report)
                    ctx.emit_artifact(stream_id="report", chunk="", done=True, artifact_type="text/csv")
                return found

    @tool(side_effects="read", idempotent=True, timeout_s=120, tags=["tables"])
    def export_csv(given: CsvExport, ctx: ToolContext) -> Exported:
        """Export rows of a table as a CSV file."""

        def read(connection: sa.Connection) -> Exported:
            table = catalog.find(connection, ctx.tenant, given.table_id)
            of = {each.name: each.type for each in queries.chosen(table, given.columns) if each.type != "select"}
            found = Exported(filename=f"{table.table_id}.csv", rows=0, columns=of)
            if given.page:
                found.text, found.rows, found.next_cursor = page(connection, table, given, given.cursor, bom=given.bom)
                return found
            size = 0
            for text, count in written(connection, table, given, bom=given.bom):
                found.rows += count
                size += len(text.encode())
                if size > _MAX_STREAMED_BYTES:
                    limit = "bytes of an export as an artifact: filter the rows, or download it; more of them"
                    raise LimitExceeded(limit, _MAX_STREAMED_BYTES, size)
                _emit(ctx, "csv", io.StringIO(text, newline=""))
            ctx.emit_artifact(stream_id="csv", chunk="", done=True, artifact_type="text/csv")
            return found

        return database.read(read)

    return [*row_tools(database), import_csv, export_csv]


def _imported(
    connection: sa.Connection, given: CsvImport, tenant: str, content: str, file: CsvFile, report: IO[str]
) -> Imported:
    """Import a file, or return what has come of the same import before. `content`: the digest of its bytes."""
    digest = rows.fingerprint(content, given.model_dump(exclude={"csv", "file"}))
    key = f"import:{given.import_id or digest}"
    before = rows.find_outcome(connection, tenant, key, 0, digest)
    if before is not None:
        try:
            catalog.find(connection, tenant, before["table_id"])
            return Imported.model_validate(before | {"repeated": True})
        except Refused:  # Its table was deleted since.
            outcome = schema.outcomes.c
            connection.execute(schema.outcomes.delete().where(outcome.tenant == tenant, outcome.key == key))
    work = Import(file, given.columns, report)
    found = work.run(connection, tenant, given.table_id, given.name or "", given.description)
    rows.save_outcome(connection, tenant, key, 0, digest, found)
    return Imported.model_validate(found)


def _pieces(file: ArtifactRef, ctx: ToolContext) -> Iterator[bytes]:
    offset = 0
    while piece := ctx.read_artifact(file, offset).value:
        yield piece
        offset += len(piece)
        if len(piece) < PART_BYTES:
            return


def _emit(ctx: ToolContext, stream_id: str, text: IO[str]) -> None:
    while piece := text.read(_PIECE_CHARACTERS):
        ctx.emit_artifact(stream_id=stream_id, chunk=piece, artifact_type="text/csv")
