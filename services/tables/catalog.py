"""Which tables a tenant has, and what their columns are.

Rule 1: a table is found by tenant and id, or tenant and name, together, and its rows through the table alone.
Rule 2: a writer selects the table with a lock (`locked=True`): writes of one table are serialized, and each increments
its version.
Rule 3: names of tables are unique in a tenant, those of columns in a table, without regard to case.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from services.tables import schema, values
from services.tables.errors import LimitExceeded, Refused, SchemaRefused
from services.tables.values import Column

MAX_TABLES = 1_000
BATCH_ROWS = 1_000
_CONVERTED = "_new"
"""Ends the name of a physical column while its cells are converted."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one version."""

    table_id: str
    name: str
    description: str
    version: int
    next_row_id: int
    row_count: int
    columns: tuple[Column, ...]

    @property
    def rows(self) -> sa.Table:
        """The physical table."""
        return schema.rows_of(self.table_id, self.columns)

    def column(self, name: str) -> Column:
        """Return the column with this id or name. Raises Refused."""
        if (found := values.column_of(self.columns, name)) is None:
            known = ", ".join(each.name for each in self.columns[:20])
            raise Refused("column_unknown", f"{self.name} has no column {name[:100]!r}; it has: {known}", name)
        return found


def new_column_id() -> str:
    """Return an id that names a column for good."""
    return f"col_{secrets.token_hex(6)}"


def find(connection: sa.Connection, tenant: str, table_id: str, *, locked: bool = False) -> Table:
    """Return a table of the tenant, by id or name. Raises Refused, the same for an unknown one and another tenant's."""
    of = schema.tables.c.id == table_id
    if not table_id.startswith("tab_"):  # A model may know its name alone.
        of = schema.tables.c.folded_name == values.fold(table_id.strip(values.BLANKS))
    query = sa.select(schema.tables).where(schema.tables.c.tenant == tenant, of)
    row = connection.execute(query.with_for_update() if locked else query).one_or_none()
    if row is None:
        raise Refused("table_not_found", "there is no such table: list_tables names the tables that there are")
    its = sa.select(schema.columns).where(schema.columns.c.table_id == row.id).order_by(schema.columns.c.position)
    columns = tuple(
        Column(each.id, each.name, each.type, each.required, tuple(each.options), each.filter_display)
        for each in connection.execute(its)
    )
    return Table(row.id, row.name, row.description, row.version, row.next_row_id, row.row_count, columns)


def listed(connection: sa.Connection, tenant: str, after: str, limit: int) -> list[dict[str, Any]]:
    """Return tables of a tenant by folded name, from the one behind `after` on, with their numbers of columns and rows.

    Keys: `table_id`, `name`, `description`, `version`, `columns`, `rows`.
    """
    of = schema.tables.c
    count = sa.select(sa.func.count()).where(schema.columns.c.table_id == of.id).scalar_subquery()
    shown = (of.id.label("table_id"), of.name, of.description, of.version, of.row_count.label("rows"))
    query = sa.select(*shown, count.label("columns")).where(of.tenant == tenant)
    if after:
        query = query.where(of.folded_name > after)
    return [dict(each) for each in connection.execute(query.order_by(of.folded_name).limit(limit)).mappings()]


def create(connection: sa.Connection, tenant: str, name: str, description: str, columns: Sequence[Column]) -> Table:
    """Make an empty table. Raises Refused."""
    count = sa.select(sa.func.count()).select_from(schema.tables).where(schema.tables.c.tenant == tenant)
    if (found := connection.execute(count).scalar_one()) >= MAX_TABLES:
        raise LimitExceeded("tables of a tenant", MAX_TABLES, found + 1)
    names = named(connection, tenant, name, description)
    table = Table(f"tab_{secrets.token_hex(8)}", names["name"], description, 1, 1, 0, tuple(columns))
    connection.execute(
        schema.tables.insert().values(id=table.table_id, tenant=tenant, version=1, next_row_id=1, row_count=0, **names)
    )
    _save_columns(connection, table)
    table.rows.create(connection)
    return table


def remove(connection: sa.Connection, table: Table) -> None:
    """Delete a table with all its rows."""
    table.rows.drop(connection)
    connection.execute(schema.columns.delete().where(schema.columns.c.table_id == table.table_id))
    connection.execute(schema.tables.delete().where(schema.tables.c.id == table.table_id))


def touch(connection: sa.Connection, table: Table, *, added: int = 0, removed: int = 0) -> Table:
    """Raise the version of a table that was found `locked`, and count its rows."""
    version, row_count = table.version + 1, table.row_count + added - removed
    next_row_id = table.next_row_id + added
    where = schema.tables.c.id == table.table_id
    change = schema.tables.update().where(where)
    connection.execute(change.values(version=version, next_row_id=next_row_id, row_count=row_count))
    return replace(table, version=version, next_row_id=next_row_id, row_count=row_count)


def alter(
    connection: sa.Connection, tenant: str, table: Table, columns: Sequence[Column], name: str, description: str
) -> Table:
    """Give a table other columns, which keep their cells by id. Raises Refused where a cell does not fit any more."""
    operations = Operations(MigrationContext.configure(connection))
    old = {each.column_id: each for each in table.columns}
    kept = {each.column_id for each in columns}
    for column in columns:
        before = old.get(column.column_id)
        if before is None:
            for each in schema.physical_columns(column):
                operations.add_column(table.rows.name, each)
        elif (before.type, before.options) != (column.type, column.options):
            _convert(connection, operations, table, before, column)
    for column in table.columns:
        for each in schema.physical_columns(column) if column.column_id not in kept else ():
            operations.drop_column(table.rows.name, each.name)
    names = named(connection, tenant, name, description, table.table_id)
    connection.execute(schema.tables.update().where(schema.tables.c.id == table.table_id).values(**names))
    altered = replace(
        touch(connection, table), columns=tuple(columns), name=names["name"], description=names["description"]
    )
    _save_columns(connection, altered)
    return altered


def batches(connection: sa.Connection, query: sa.Select[Any], key: sa.Column[Any]) -> Iterator[Sequence[sa.Row[Any]]]:
    """Return the rows of a query by their id, some at a time."""
    after = 0
    while found := connection.execute(query.where(key > after).order_by(key).limit(BATCH_ROWS)).all():
        yield found
        after = found[-1].id


def _convert(connection: sa.Connection, operations: Operations, table: Table, before: Column, column: Column) -> None:
    """Fill physical columns of the new type beside the old ones, then put them in their place."""
    fresh = replace(column, column_id=f"{column.column_id}{_CONVERTED}")
    added = schema.physical_columns(fresh)
    for each in added:
        operations.add_column(table.rows.name, each)
    rows = sa.Table(table.rows.name, sa.MetaData(), sa.Column("id", sa.BigInteger), *schema.physical_columns(fresh))
    old = table.rows.c[before.column_id]
    change = rows.update().where(rows.c.id == sa.bindparam("row")).values({c.name: sa.bindparam(c.name) for c in added})
    for batch in batches(
        connection, sa.select(table.rows.c.id, old.label("old")).where(old.is_not(None)), table.rows.c.id
    ):
        cells = []
        for row in batch:
            try:
                value, _ = values.converted(column, values.shown(row.old))
            except Refused as error:
                raise Refused(error.code, f"row {row.id} has a value that does not fit: {error}", column.name) from None
            cells.append({"row": row.id, **schema.stored((fresh,), {fresh.column_id: value})})
        connection.execute(change, cells)
    for each in schema.physical_columns(before):
        operations.drop_column(table.rows.name, each.name)
    for each, final in zip(added, schema.physical_columns(column), strict=True):
        operations.alter_column(table.rows.name, each.name, new_column_name=final.name)


def named(
    connection: sa.Connection, tenant: str, name: str, description: str, own: str | None = None
) -> dict[str, str]:
    """Return the names of a table as they are stored. `own`: its id, where it has one. Raises Refused."""
    name = name.strip(values.BLANKS)
    for what, text, limit in (
        ("characters of a table's name", name, values.MAX_NAME_CHARACTERS),
        ("characters of a description", description, values.MAX_DESCRIPTION_CHARACTERS),
    ):
        if len(text) > limit:
            raise LimitExceeded(what, limit, len(text))
    if not name or "\0" in name + description:
        raise SchemaRefused(["table_name_required@table_name"])
    folded = values.fold(name)
    where = (schema.tables.c.tenant == tenant, schema.tables.c.folded_name == folded)
    if (found := connection.execute(sa.select(schema.tables.c.id).where(*where)).scalar()) not in {None, own}:
        raise Refused("table_name_taken", f"there is a table {name!r} already: {found}; choose another name")
    return {"name": name, "folded_name": folded, "description": description}


def _save_columns(connection: sa.Connection, table: Table) -> None:
    connection.execute(schema.columns.delete().where(schema.columns.c.table_id == table.table_id))
    rows = []
    for position, column in enumerate(table.columns):
        stored = asdict(column)
        rows.append({"id": stored.pop("column_id"), "table_id": table.table_id, "position": position, **stored})
    connection.execute(schema.columns.insert(), rows)
