"""The schema: tables, their columns, outcomes of writes; and the physical table that holds the rows of one table.

Rule 1: physical names are ids that were made here, so no name that somebody chose reaches a statement.
Rule 2: texts are kept beside their folded form, by which they are sorted and searched: no database folds them itself.
Rule 3: every constraint has a name, so that a migration can change it on both databases.
"""

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from services.tables.values import MAX_DESCRIPTION_CHARACTERS, MAX_NAME_CHARACTERS, Column, fold

_TEXT = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared by its UTF-8 bytes, which is the order of code points."""
_NUMBERED = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ID_CHARACTERS, KEY_CHARACTERS = 40, 200

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

tables = sa.Table(
    "tables",
    metadata,
    sa.Column("id", sa.String(_ID_CHARACTERS), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("name", sa.String(MAX_NAME_CHARACTERS), nullable=False),
    sa.Column("folded_name", _TEXT, nullable=False),
    sa.Column("description", sa.String(MAX_DESCRIPTION_CHARACTERS), nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("next_row_id", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("tenant", "folded_name"),
)

columns = sa.Table(
    "columns",
    metadata,
    sa.Column("id", sa.String(_ID_CHARACTERS), primary_key=True),
    sa.Column("table_id", sa.ForeignKey("tables.id", ondelete="CASCADE"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("name", sa.String(MAX_NAME_CHARACTERS), nullable=False),
    sa.Column("type", sa.String(20), nullable=False),
    sa.Column("required", sa.Boolean, nullable=False),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("filter_display", sa.String(20)),
    sa.UniqueConstraint("table_id", "position"),
)

outcomes = sa.Table(
    "outcomes",
    metadata,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(KEY_CHARACTERS), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("outcome", sa.JSON, nullable=False),
    sa.Column("saved_at", sa.BigInteger, nullable=False, index=True),
)


def folded(column: Column) -> str:
    """Return the physical name of the folded form of a column of texts."""
    return f"{column.column_id}_f"


def physical_columns(column: Column) -> list[sa.Column[Any]]:
    """Return what holds a column's cells."""
    kinds: dict[str, Any] = {"number": sa.Double, "boolean": sa.Boolean}
    found = [sa.Column(column.column_id, kinds.get(column.type, _TEXT))]
    return found + ([sa.Column(folded(column), _TEXT)] if column.is_text else [])


@lru_cache(256)
def rows_of(table_id: str, of: tuple[Column, ...]) -> sa.Table:
    """Return the physical table of a table. `changes`: JSON, the version in which each cell was changed last."""
    return sa.Table(
        f"rows_{table_id}",
        sa.MetaData(),
        sa.Column("id", _NUMBERED, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.JSON, nullable=False),
        *(each for column in of for each in physical_columns(column)),
    )


def stored(of: tuple[Column, ...], cells: dict[str, Any]) -> dict[str, Any]:
    """Return the values of physical columns for cells by column id."""
    found = dict(cells)
    for column in of:
        if column.is_text and column.column_id in cells:
            value = cells[column.column_id]
            found[folded(column)] = None if value is None else fold(value)
    return found
