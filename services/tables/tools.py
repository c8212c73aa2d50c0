"""The tools of the service. Each is a function over the database: arguments, one transaction, a result.

Rule 1: every statement is about the tenant of the call, whatever an argument says.
Rule 2: a write saves its outcome under the call's idempotency key, so a call that is repeated after a crash changes
nothing twice; that is why all tools are idempotent.
"""

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from runwire import Tool, ToolContext, tool
from services.tables import catalog, queries, rows, schema, values
from services.tables.database import Database
from services.tables.errors import SchemaRefused
from services.tables.proposals import applying
from services.tables.proposals import columns as column_rules

M = TypeVar("M", bound=BaseModel)
_MAX_LISTED_BYTES = 16 << 10
"""Of the outcomes of an apply in its result as JSON, and of those that it lists where there are more."""
_MAX_LISTED = 8
"""Errors and warnings that it lists then."""


class ColumnView(BaseModel):
    """A column. `options` are those of a select; `filterDisplay` says how its filter is shown."""

    column_id: str
    name: str
    type: values.ColumnType
    required: bool
    options: list[str] | None = None
    filterDisplay: str | None = None  # noqa: N815, the name in proposals


class TableView(BaseModel):
    """A table with its columns in their order. `version` rises with every change."""

    table_id: str
    name: str
    description: str
    version: int
    rows: int
    columns: list[ColumnView]


class ListedTable(BaseModel):
    """A table in a list; `columns` and `rows` are numbers of them."""

    table_id: str
    name: str
    description: str
    version: int
    columns: int
    rows: int


class ListedTables(BaseModel):
    """One page of tables by name; `next`: for `after`, null at the end."""

    tables: list[ListedTable]
    next: str | None


class RowView(BaseModel):
    """A row: its cells by the names of columns."""

    row_id: int
    cells: dict[str, Any]


class RowPage(BaseModel):
    """A page of rows. `total`: of all that the filters choose, on the first page; `next_cursor`: null at the end."""

    table_id: str
    version: int
    rows: list[RowView]
    total: int | None
    next_cursor: str | None
    aggregates: list[Any]


class WrittenRow(BaseModel):
    """A row that was written; `warnings` names columns whose value was mended. A deleted row has no cells."""

    row_id: int
    version: int
    cells: dict[str, Any]
    warnings: list[str]


class NewColumn(BaseModel):
    """A column to make. A select needs options."""

    model_config = ConfigDict(extra="forbid")

    name: str
    type: values.ColumnType
    required: bool = False
    options: list[str] | None = None
    filterDisplay: Literal["tab", "dropdown"] | None = None  # noqa: N815, the name in proposals


class RowQuery(queries.Selection):
    """Which rows of a table, as a page."""

    table_id: str
    limit: int = Field(default=50, ge=1, le=queries.MAX_PAGE_ROWS)
    cursor: str | None = Field(default=None, description="next_cursor of the page before, with the same query")
    aggregates: list[queries.Aggregate] = Field(default_factory=list, max_length=50)


class Proposal(BaseModel):
    """A proposal that a person has accepted, or the chosen operations of it."""

    proposal_id: str = Field(min_length=1, max_length=100)
    kind: Literal["data", "schema"]
    table_id: str | None = Field(default=None, description="null: a new table")
    base_version: int | None = Field(default=None, description="the table's version when the proposal was written")
    operations: list[Any] = Field(max_length=1_000, description="`index` in each: its number in the proposal")
    mode: Any = None
    table_name: Any = None
    table_description: Any = None
    sample_rows: Any = None
    include_sample_rows: bool = False
    check_only: bool = Field(default=False, description="say what would come of it, and change nothing")


class Applied(BaseModel):
    """What came of a proposal. `errors` and `warnings`: of the whole, each as `code@path`."""

    kind: Literal["data", "schema"]
    table_id: str | None
    version: int | None
    applied: int
    failed: int
    counts: dict[str, int]
    errors: list[str]
    warnings: list[str]
    operations: list[dict[str, Any]]
    all_operations: list[dict[str, Any]] | None = Field(
        default=None,
        description="where they are many; then `operations` has the first refused ones",
        json_schema_extra={"artifact": True},
    )


def view_of(table: catalog.Table) -> TableView:
    """Return a table as it is shown."""
    columns = []
    for each in table.columns:
        options = list(each.options) if each.type == "select" else None
        column = {"column_id": each.column_id, "name": each.name, "type": each.type, "required": each.required}
        columns.append({**column, "options": options, "filterDisplay": each.filter_display})
    shown = {"table_id": table.table_id, "name": table.name, "description": table.description}
    return TableView.model_validate({**shown, "version": table.version, "rows": table.row_count, "columns": columns})


def once(database: Database, ctx: ToolContext, kind: type[M], work: Callable[[sa.Connection], M]) -> M:
    """Carry out the write of a call, or return what it has done before."""
    key, digest = f"call:{ctx.idempotency_key}"[-schema.KEY_CHARACTERS :], ""

    def transaction(connection: sa.Connection) -> M:
        if (before := rows.find_outcome(connection, ctx.tenant, key, 0, digest)) is not None:
            return kind.model_validate(before)
        result = work(connection)
        rows.save_outcome(connection, ctx.tenant, key, 0, digest, result.model_dump(mode="json"))
        return result

    return database.write(transaction)


def row_tools(database: Database) -> list[Tool[..., Any]]:
    """Return the tools for tables and their rows."""
    return [*_reading(database), *_of_tables(database), *_of_rows(database)]


def _reading(database: Database) -> list[Tool[..., Any]]:
    @tool(side_effects="read", idempotent=True, tags=["tables"])
    def list_tables(ctx: ToolContext, limit: int = 100, after: str = "") -> ListedTables:
        """List the tables that there are, by name."""
        limit = max(1, min(limit, 500))
        found = database.read(lambda connection: catalog.listed(connection, ctx.tenant, values.fold(after), limit))
        following = found[-1]["name"] if len(found) == limit else None
        return ListedTables.model_validate({"tables": found, "next": following})

    @tool(side_effects="read", idempotent=True, tags=["tables"])
    def describe_table(table_id: str, ctx: ToolContext) -> TableView:
        """Describe a table: its columns with their ids, types and options, its version, the number of its rows."""
        return database.read(lambda connection: view_of(catalog.find(connection, ctx.tenant, table_id)))

    @tool(side_effects="read", idempotent=True, tags=["tables"])
    def query_rows(query: RowQuery, ctx: ToolContext) -> RowPage:
        """Read rows of a table: filtered, sorted, a page at a time, with figures over all that the filters choose."""

        def read(connection: sa.Connection) -> RowPage:
            table = catalog.find(connection, ctx.tenant, query.table_id)
            of = queries.chosen(table, query.columns)
            found, cursor = queries.page(connection, table, query, query.limit, query.cursor)
            return RowPage(
                table_id=table.table_id,
                version=table.version,
                rows=[
                    RowView(
                        row_id=row[queries.ROW_ID], cells={each.name: values.shown(row[each.column_id]) for each in of}
                    )
                    for row in found
                ],
                total=queries.count(connection, table, query) if query.cursor is None else None,
                next_cursor=cursor,
                aggregates=queries.aggregates(connection, table, query, query.aggregates),
            )

        return database.read(read)

    return [list_tables, describe_table, query_rows]


def _of_tables(database: Database) -> list[Tool[..., Any]]:
    @tool(side_effects="write", idempotent=True, requires_approval=True, tags=["tables"])
    def create_table(name: str, columns: list[NewColumn], ctx: ToolContext, description: str = "") -> TableView:
        """Make a table with these columns and no rows. Its name must be new."""

        def create(connection: sa.Connection) -> TableView:
            added = [{"action": "add", "column": each.model_dump(exclude_none=True)} for each in columns]
            checked = column_rules.check({"mode": "update", "operations": added}, (), catalog.new_column_id)
            if checked.errors:
                raise SchemaRefused(checked.errors)
            return view_of(catalog.create(connection, ctx.tenant, name, description, checked.columns))

        return once(database, ctx, TableView, create)

    @tool(side_effects="write", idempotent=True, requires_approval=True, tags=["tables"])
    def delete_table(table_id: str, ctx: ToolContext) -> TableView:
        """Delete a table with all its rows. The result is what it was."""

        def delete(connection: sa.Connection) -> TableView:
            table = catalog.find(connection, ctx.tenant, table_id, locked=True)
            catalog.remove(connection, table)
            return view_of(table)

        return once(database, ctx, TableView, delete)

    @tool(side_effects="write", idempotent=True, hidden=True, timeout_s=120, tags=["tables"])
    def apply_proposal(proposal: Proposal, ctx: ToolContext) -> Applied:
        """Apply a proposal that a person has accepted. Repeated with the same proposal_id it completes what is open."""
        return _listed(_applied(database, ctx.tenant, proposal))

    @tool(side_effects="read", idempotent=True, hidden=True, timeout_s=120, tags=["tables"])
    def check_proposal(proposal: Proposal, ctx: ToolContext) -> Applied:
        """Say what would come of a proposal now, and change nothing."""
        return _applied(database, ctx.tenant, proposal.model_copy(update={"check_only": True}))

    return [create_table, delete_table, apply_proposal, check_proposal]


def _listed(found: Applied) -> Applied:
    """Return what came of a proposal, with its counts in a result that is not kept apart as a whole for its size."""
    if len(found.model_dump_json()) <= _MAX_LISTED_BYTES:
        return found
    listed: list[dict[str, Any]] = []
    for each in found.operations:
        if each["status"] == "failed" and len(json.dumps([*listed, each])) <= _MAX_LISTED_BYTES:
            listed.append(each)
    changes = {"operations": listed, "all_operations": found.operations}
    return found.model_copy(
        update={**changes, "errors": found.errors[:_MAX_LISTED], "warnings": found.warnings[:_MAX_LISTED]}
    )


def _applied(database: Database, tenant: str, proposal: Proposal) -> Applied:
    if proposal.kind == "data":
        key, table_id = f"proposal:{proposal.proposal_id}", proposal.table_id or ""
        apply = applying.RowsApply(database, tenant, key, table_id, proposal.base_version, proposal.check_only)
        numbered = [
            (each.get("index", at) if isinstance(each, dict) else at, each)
            for at, each in enumerate(proposal.operations)
        ]
        return Applied.model_validate(apply.run(numbered))
    whole = proposal.model_dump(include={"mode", "table_name", "table_description", "operations", "sample_rows"})
    found = database.write(
        lambda connection: applying.apply_to_columns(
            connection,
            tenant,
            proposal.proposal_id,
            proposal.table_id,
            whole,
            with_samples=proposal.include_sample_rows,
            check_only=proposal.check_only,
        )
    )
    return Applied.model_validate(found)


def _of_rows(database: Database) -> list[Tool[..., Any]]:
    @tool(side_effects="write", idempotent=True, requires_approval=True, tags=["tables"])
    def create_row(table_id: str, values: dict[str, Any], ctx: ToolContext) -> WrittenRow:
        """Add a row: values by the names or ids of columns."""

        def create(connection: sa.Connection) -> WrittenRow:
            table = catalog.find(connection, ctx.tenant, table_id, locked=True)
            cells, mended = _cells(table, values, whole=True)
            return _written(rows.insert(connection, table, [cells]), table.next_row_id, cells, mended)

        return once(database, ctx, WrittenRow, create)

    @tool(side_effects="write", idempotent=True, requires_approval=True, tags=["tables"])
    def update_row(
        table_id: str, row_id: int, changes: dict[str, Any], ctx: ToolContext, base_version: int | None = None
    ) -> WrittenRow:
        """Change cells of a row; null clears one. With base_version a cell that was changed since is left as it is."""

        def update(connection: sa.Connection) -> WrittenRow:
            table = catalog.find(connection, ctx.tenant, table_id, locked=True)
            cells, mended = _cells(table, changes, whole=False)
            return _written(rows.update(connection, table, row_id, cells, base_version), row_id, cells, mended)

        return once(database, ctx, WrittenRow, update)

    @tool(side_effects="write", idempotent=True, requires_approval=True, tags=["tables"])
    def delete_row(table_id: str, row_id: int, ctx: ToolContext, base_version: int | None = None) -> WrittenRow:
        """Delete a row. With base_version one that was changed since is kept."""

        def delete(connection: sa.Connection) -> WrittenRow:
            table = catalog.find(connection, ctx.tenant, table_id, locked=True)
            return _written(rows.delete(connection, table, row_id, base_version), row_id, {}, [])

        return once(database, ctx, WrittenRow, delete)

    return [create_row, update_row, delete_row]


def _cells(table: catalog.Table, given: dict[str, Any], *, whole: bool) -> tuple[dict[str, Any], list[str]]:
    return values.cells_of(table.columns, given, whole=whole)


def _written(table: catalog.Table, row_id: int, cells: dict[str, Any], mended: list[str]) -> WrittenRow:
    shown = {each.name: values.shown(cells[each.column_id]) for each in table.columns if each.column_id in cells}
    return WrittenRow(
        row_id=row_id, version=table.version, cells=shown, warnings=[f"value_coerced@{n}" for n in mended]
    )
