"""Write rows of a table that was found `locked`, and save the outcome of a write in its transaction.

Rule 1: a row's id is an integer that is never used again; `changes` says in which version each cell was changed last.
Rule 2: a write that knows the version it was decided from (`base_version`) fails with `row_changed` where the same cell
was changed since, and a deletion where any was. What the writer itself has changed (`own`) does not count.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from contracts.wire.names import unix_ms
from services.tables import schema
from services.tables.catalog import Table, touch
from services.tables.errors import LimitExceeded, Refused

MAX_ROWS = 1_000_000
_WHOLE = "*"
"""In `changes`: the version in which the row was made."""


def insert(connection: sa.Connection, table: Table, rows: Sequence[dict[str, Any]]) -> Table:
    """Add rows of cells by column id. The first has the id `table.next_row_id`, the others follow."""
    if table.row_count + len(rows) > MAX_ROWS:
        raise LimitExceeded("rows of a table", MAX_ROWS, table.row_count + len(rows))
    version = table.version + 1
    changes = json.dumps({_WHOLE: version})
    names = [each.name for each in table.rows.c]
    given = (
        {**schema.stored(table.columns, cells), "id": row_id, "version": version, "changes": changes}
        for row_id, cells in enumerate(rows, table.next_row_id)
    )
    filled = [tuple(map(row.get, names)) for row in given]
    if connection.dialect.name == "sqlite":
        if filled:
            connection.exec_driver_sql(str(table.rows.insert().compile(dialect=connection.dialect)), filled)
    else:
        driver: Any = connection.connection.driver_connection
        quoted = connection.dialect.identifier_preparer.quote_identifier
        into = f"COPY {quoted(table.rows.name)} ({', '.join(map(quoted, names))}) FROM STDIN"
        with driver.cursor() as cursor, cursor.copy(into) as copy:
            for row in filled:
                copy.write_row(row)
    return touch(connection, table, added=len(rows))


def update(
    connection: sa.Connection,
    table: Table,
    row_id: int,
    cells: dict[str, Any],
    base_version: int | None = None,
    own: Collection[int] = (),
) -> Table:
    """Change cells of a row. Raises Refused, code `row_not_found` or `row_changed`."""
    row = check_unchanged(connection, table, row_id, cells, base_version, own)
    names = {each.column_id for each in table.columns}
    version = table.version + 1
    changes = {key: at for key, at in row.changes.items() if key in names or key == _WHOLE}
    new = {"version": version, "changes": changes | dict.fromkeys(cells, version)}
    where = table.rows.c.id == row_id
    connection.execute(table.rows.update().where(where).values(**new, **schema.stored(table.columns, cells)))
    return touch(connection, table)


def delete(
    connection: sa.Connection, table: Table, row_id: int, base_version: int | None = None, own: Collection[int] = ()
) -> Table:
    """Delete a row. Raises Refused, code `row_not_found` or `row_changed`."""
    check_unchanged(connection, table, row_id, None, base_version, own)
    connection.execute(table.rows.delete().where(table.rows.c.id == row_id))
    return touch(connection, table, removed=1)


def check_unchanged(
    connection: sa.Connection,
    table: Table,
    row_id: int,
    cells: Collection[str] | None,
    base_version: int | None,
    own: Collection[int],
) -> sa.Row[Any]:
    """Return a row of which nobody else has changed these cells since; None: any of it.

    Raises Refused, code `row_not_found` or `row_changed`.
    """
    row = current(connection, table, row_id)
    names = {each.column_id: each.name for each in table.columns}
    for column_id in row.changes if cells is None else cells:
        at = row.changes.get(column_id, row.changes[_WHOLE])
        if base_version is not None and at > base_version and at not in own:
            if cells is None:
                raise Refused("row_changed", f"row {row_id} was changed meanwhile", "row_id")
            raise Refused("row_changed", f"{names[column_id]} of row {row_id} was changed meanwhile", names[column_id])
    return row


def current(connection: sa.Connection, table: Table, row_id: int) -> sa.Row[Any]:
    """Return a row as it is. Raises Refused, code `row_not_found`."""
    found = None
    if 0 < row_id < table.next_row_id:
        found = connection.execute(sa.select(table.rows).where(table.rows.c.id == row_id)).one_or_none()
    if found is None:
        raise Refused("row_not_found", f"there is no row {row_id} in {table.name}", "row_id")
    return found


def cells_of(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a physical row, by the columns' names."""
    return {each.name: row[each.column_id] for each in table.columns}


def fingerprint(*parts: Any) -> str:
    """Return what tells one write from another."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def find_outcome(connection: sa.Connection, tenant: str, key: str, position: int, digest: str) -> Any:
    """Return the outcome of a write that has happened already; None before that.

    Raises Refused, code `proposal_reused`, if another write has this key.
    """
    table = schema.outcomes
    where = (table.c.tenant == tenant, table.c.key == key, table.c.position == position)
    row = connection.execute(sa.select(table.c.fingerprint, table.c.outcome).where(*where)).one_or_none()
    if row is not None and row.fingerprint != digest:
        raise Refused("proposal_reused", f"another operation was applied as number {position} of this id already")
    return None if row is None else row.outcome


def save_outcome(connection: sa.Connection, tenant: str, key: str, position: int, digest: str, outcome: Any) -> None:
    """Save the outcome of a write, in the transaction that does it."""
    row = {"tenant": tenant, "key": key, "position": position, "fingerprint": digest, "outcome": outcome}
    connection.execute(schema.outcomes.insert().values(**row, saved_at=unix_ms()))
