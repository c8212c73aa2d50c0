"""The tools that import and export CSV, and with them all tools of the service."""

import hashlib
from typing import Any

import sqlalchemy as sa
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from runwire import Tool, ToolContext, tool
from services.tables import catalog, queries, rows, schema, values
from services.tables.csv_files.exporting import written
from services.tables.csv_files.importing import Import
from services.tables.csv_files.reading import opened
from services.tables.database import Database
from services.tables.errors import LimitExceeded, Refused
from services.tables.tools import row_tools

_MAX_EXPORT_BYTES = 32 << 20


class CsvImport(BaseModel):
    """A file and where it goes: `name` makes a new table, `table_id` names one that is there."""

    model_config = ConfigDict(extra="forbid")

    csv: str | None = Field(default=None, description="the file as text")
    file: Base64Bytes | None = Field(default=None, description="the file as bytes: a reference to an artifact")
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
    """What came of an import. `refused_rows`: the first of them; `report`: all, as CSV, where there are more."""

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
    report: str | None = Field(json_schema_extra={"artifact": True})


class CsvExport(queries.Selection):
    """Which rows of a table."""

    table_id: str
    bom: bool = Field(default=False, description="begin with a byte order mark, by which Excel knows UTF-8")


class Exported(BaseModel):
    """A file. `columns`: the types, which an import of the file into a new table takes as they are."""

    filename: str
    rows: int
    columns: dict[str, values.ColumnType]
    csv: bytes = Field(json_schema_extra={"artifact": True})


def tools_of(database: Database) -> list[Tool[..., Any]]:
    """Return all tools, on one database."""

    @tool(side_effects="write", idempotent=True, requires_approval=True, timeout_s=300, tags=["tables"])
    def import_csv(given: CsvImport, ctx: ToolContext) -> Imported:
        """Import a CSV file into a new table or one that is there. Rows that do not fit are left out and reported."""
        if (given.csv is None) == (given.file is None) or (given.name is None) == (given.table_id is None):
            raise Refused("csv_invalid", "give one of csv and file, and one of name and table_id")
        data = given.file if given.file is not None else (given.csv or "").encode()
        file = opened(data, "utf-8" if given.file is None else given.encoding, given.delimiter)
        prepared = given.name or given.table_id
        digest = rows.fingerprint(hashlib.sha256(data).hexdigest(), prepared, given.model_dump(exclude={"csv", "file"}))
        key = f"import:{given.import_id or digest}"

        def transaction(connection: sa.Connection) -> Imported:
            before = rows.kept(connection, ctx.tenant, key, 0, digest)
            if before is not None:
                try:
                    catalog.find(connection, ctx.tenant, before["table_id"])
                    return Imported.model_validate(before | {"repeated": True})
                except Refused:  # Its table was deleted since.
                    outcome = schema.outcomes.c
                    of_key = (outcome.tenant == ctx.tenant, outcome.key == key)
                    connection.execute(schema.outcomes.delete().where(*of_key))
            work = Import(file, given.columns)
            found = work.run(connection, ctx.tenant, given.table_id, given.name or "", given.description)
            rows.keep(connection, ctx.tenant, key, 0, digest, found)
            return Imported.model_validate(found)

        return database.write(transaction)

    @tool(side_effects="read", idempotent=True, timeout_s=120, tags=["tables"])
    def export_csv(given: CsvExport, ctx: ToolContext) -> Exported:
        """Export rows of a table as a CSV file."""

        def read(connection: sa.Connection) -> Exported:
            table = catalog.find(connection, ctx.tenant, given.table_id)
            found = bytearray()
            for piece in written(connection, table, given, bom=given.bom):
                found += piece
                if len(found) > _MAX_EXPORT_BYTES:
                    raise LimitExceeded(
                        "bytes of one export: filter the rows, so that they", _MAX_EXPORT_BYTES, len(found)
                    )
            of = {each.name: each.type for each in queries.chosen(table, given.columns) if each.type != "select"}
            count = queries.count(connection, table, given)
            return Exported(filename=f"{table.table_id}.csv", rows=count, columns=of, csv=bytes(found))

        return database.read(read)

    return [*row_tools(database), import_csv, export_csv]
