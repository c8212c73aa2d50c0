"""Read rows: filters and sorts are data, and become expressions over physical columns.

Rule 1: rows without a value come last, in either direction; equal rows follow by row id. Texts are compared folded, by
code points, of which the first 100 decide an order: the same on both databases.
Rule 2: a page continues behind the last row of the one before, by that row's values: rows that come or go meanwhile
shift nothing. A cursor belongs to its query.
Rule 3: `not_equals` means the rows that do not have the value, so those without a value too.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from services.tables import rows as row_writes
from services.tables import schema, values
from services.tables.catalog import Table
from services.tables.errors import Refused
from services.tables.values import Column

ROW_ID = "row_id"
_ROW_ID_COLUMN = Column("id", ROW_ID, "number")
MAX_PAGE_ROWS, MAX_PAGE_BYTES = 500, 512 << 10
_SORTED_CHARACTERS = 100
_MAX_TERMS = 50

Operator = Literal[
    "equals",
    "not_equals",
    "less",
    "less_or_equal",
    "greater",
    "greater_or_equal",
    "contains",
    "starts_with",
    "is_empty",
    "is_not_empty",
    "in",
]
_ORDERED = {"less": "__lt__", "less_or_equal": "__le__", "greater": "__gt__", "greater_or_equal": "__ge__"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Filter(_Strict):
    """One condition on a column."""

    column: str = Field(description="name or id of a column, or row_id")
    op: Operator = Field(
        description="contains and starts_with ignore case; not_equals keeps rows without a value; in takes a list"
    )
    value: Any = None


class Sort(_Strict):
    """One column by which rows are sorted; rows without a value come last."""

    column: str
    descending: bool = False


class Selection(_Strict):
    """Which rows, in which order, with which columns."""

    filters: list[Filter] = Field(default_factory=list, max_length=_MAX_TERMS)
    match: Literal["all", "any"] = Field(default="all", description="whether all filters hold, or any of them")
    sort: list[Sort] = Field(default_factory=list, max_length=10)
    columns: list[str] | None = Field(default=None, max_length=values.MAX_COLUMNS, description="null: all of them")


class Aggregate(_Strict):
    """One figure over all rows that the filters choose. Of no values sum, avg, min and max are null."""

    function: Literal["count", "count_values", "sum", "avg", "min", "max"] = Field(
        description="count counts rows, count_values those with a value; sum and avg are of numbers"
    )
    column: str | None = Field(default=None, description="count needs none")


def condition(table: Table, selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition on the physical rows. Raises Refused."""
    terms = [_term(table, each) for each in selection.filters]
    joined = sa.and_ if selection.match == "all" else sa.or_
    return joined(*terms) if terms else sa.true()


def pages(
    connection: sa.Connection, table: Table, selection: Selection, size: int
) -> Iterator[Sequence[sa.RowMapping]]:
    """Return all rows of a selection, some at a time."""
    query, keys = _sorted(table, selection), _keys(table, selection)
    after: list[Any] | None = None
    while found := _page(connection, query, keys, after, size):
        yield found
        after = [found[-1][f"key{at}"] for at in range(len(keys))]


def page(
    connection: sa.Connection, table: Table, selection: Selection, limit: int, cursor: str | None
) -> tuple[list[sa.RowMapping], str | None]:
    """Return the rows of one page, and the cursor of the next. Raises Refused."""
    keys = _keys(table, selection)
    query_id = row_writes.fingerprint(table.table_id, selection.model_dump(include={"filters", "match", "sort"}))[:16]
    after = None if cursor is None else _read_cursor(cursor, query_id, keys)
    found = _page(connection, _sorted(table, selection), keys, after, limit + 1)
    taken: list[sa.RowMapping] = []
    size = 0
    for row in found[:limit]:
        size += sum(len(cell) * 2 if isinstance(cell, str) else 16 for cell in row.values()) + 64
        if taken and size > MAX_PAGE_BYTES:
            break
        taken.append(row)
    if len(taken) == len(found):
        return taken, None
    values_of_last = [taken[-1][f"key{at}"] for at in range(len(keys))]
    return taken, base64.urlsafe_b64encode(json.dumps([query_id, values_of_last]).encode()).decode()


def count(connection: sa.Connection, table: Table, selection: Selection) -> int:
    """Return the number of rows that the filters choose."""
    if not selection.filters:
        return table.row_count
    return connection.execute(
        sa.select(sa.func.count()).select_from(table.rows).where(condition(table, selection))
    ).scalar_one()


def aggregates(connection: sa.Connection, table: Table, selection: Selection, of: Sequence[Aggregate]) -> list[Any]:
    """Return one value for each aggregate. Raises Refused."""
    if not of:
        return []
    is_sqlite = connection.dialect.name == "sqlite"
    expressions = [_aggregated(table, each, is_sqlite=is_sqlite) for each in of]
    query = sa.select(*(each.label(f"a{at}") for at, each in enumerate(expressions))).where(condition(table, selection))
    row = connection.execute(query.select_from(table.rows)).one()
    # 15 digits are the same on both databases.
    return [values.shown(float(f"{float(each):.15g}")) if _is_figure(each) else each for each in row]


def chosen(table: Table, names: Sequence[str] | None) -> list[Column]:
    """Return the columns with these names; None: all. Raises Refused."""
    return list(table.columns) if names is None else [_column(table, name) for name in names]


def _is_figure(value: Any) -> bool:
    return value is not None and not isinstance(value, str | bool)


def _column(table: Table, name: str) -> Column:
    found = values.column_of(table.columns, name)
    if found is None and name == ROW_ID:
        return _ROW_ID_COLUMN
    if found is None:
        known = ", ".join(each.name for each in table.columns[:20])
        raise Refused("column_unknown", f"{table.name} has no column {name[:100]!r}; it has: {known}", name)
    return found


def _expression(table: Table, column: Column) -> sa.ColumnElement[Any]:
    """Return what a column is sorted and compared by."""
    if column.is_text:
        return sa.func.substr(table.rows.c[schema.folded(column)], 1, _SORTED_CHARACTERS)
    return table.rows.c[column.column_id]


def _term(table: Table, given: Filter) -> sa.ColumnElement[bool]:
    column = _column(table, given.column)
    cell = table.rows.c[column.column_id]
    if given.op in {"is_empty", "is_not_empty"}:
        return cell.is_(None) if given.op == "is_empty" else cell.is_not(None)
    if given.op == "in":
        if not isinstance(given.value, list) or len(given.value) > 1000:  # noqa: PLR2004, more is another table
            raise Refused("filter_invalid", f"{column.name}: in needs a list of at most 1000 values", column.name)
        found = [_operand(column, each) for each in given.value]
        term = cell.in_([each for each in found if each is not None])
        return sa.or_(term, cell.is_(None)) if None in found else term
    value = _operand(column, given.value)
    if given.op in {"equals", "not_equals"}:
        if value is None:
            return cell.is_(None) if given.op == "equals" else cell.is_not(None)
        return cell == value if given.op == "equals" else sa.or_(cell != value, cell.is_(None))
    if value is None or column.type == "boolean" or (given.op not in _ORDERED and not column.is_text):
        raise Refused("filter_invalid", f"{column.name}: {given.op} needs another column or a value", column.name)
    if given.op in _ORDERED:
        value = values.fold(value)[:_SORTED_CHARACTERS] if column.is_text else value
        return getattr(_expression(table, column), _ORDERED[given.op])(value)  # type: ignore[no-any-return]
    folded = table.rows.c[schema.folded(column)]
    text = values.fold(value)
    return (
        folded.contains(text, autoescape=True) if given.op == "contains" else folded.startswith(text, autoescape=True)
    )


def _operand(column: Column, value: Any) -> Any:
    """Return a value to compare with, mended as a cell is. Of a select any text may be compared."""
    as_text = Column(column.column_id, column.name, "text") if column.is_text else column
    try:
        found, _ = values.converted(as_text, value)
    except Refused as error:
        raise Refused("filter_invalid", str(error), column.name) from None
    return int(found) if column is _ROW_ID_COLUMN and found is not None and found == int(found) else found


Key = tuple[sa.ColumnElement[Any], bool, Column]
"""What rows are sorted by, whether it falls, and of which column it is."""


def _keys(table: Table, selection: Selection) -> list[Key]:
    named = [(_column(table, each.column), each.descending) for each in selection.sort]
    until = next((at for at, (column, _) in enumerate(named) if column is _ROW_ID_COLUMN), None)
    named = [*named, (_ROW_ID_COLUMN, False)] if until is None else named[: until + 1]
    return [(_expression(table, column), descending, column) for column, descending in named]


def _sorted(table: Table, selection: Selection) -> sa.Select[Any]:
    keys = _keys(table, selection)
    wanted = [
        table.rows.c.id.label(ROW_ID),
        *(table.rows.c[each.column_id] for each in chosen(table, selection.columns)),
    ]
    order = [part for key, down, _ in keys[:-1] for part in (key.is_(None), key.desc() if down else key.asc())]
    last, down, _ = keys[-1]
    return (
        sa.select(*dict.fromkeys(wanted), *(key.label(f"key{at}") for at, (key, *_) in enumerate(keys)))
        .where(condition(table, selection))
        .order_by(*order, last.desc() if down else last.asc())
    )


def _page(
    connection: sa.Connection, query: sa.Select[Any], keys: list[Key], after: list[Any] | None, limit: int
) -> Sequence[sa.RowMapping]:
    if after is not None:
        query = query.where(_behind(keys, after))
    return connection.execute(query.limit(limit)).mappings().all()


def _behind(keys: list[Key], after: list[Any]) -> sa.ColumnElement[bool]:
    """Return what holds for the rows behind the one with these keys."""
    (key, down, _), value = keys[0], after[0]
    equal: sa.ColumnElement[bool] = key.is_(None) if value is None else key == sa.literal(value)
    behind: sa.ColumnElement[bool] = sa.false()
    if value is not None:
        behind = sa.or_(key < sa.literal(value) if down else key > sa.literal(value), key.is_(None))
    return sa.or_(behind, sa.and_(equal, _behind(keys[1:], after[1:]))) if len(keys) > 1 else behind


def _read_cursor(cursor: str, query_id: str, keys: list[Key]) -> list[Any]:
    try:
        found, after = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if found == query_id and isinstance(after[-1], int):
            return [_operand(column, value) for (_, _, column), value in zip(keys, after, strict=True)]
    except (ValueError, TypeError, LookupError, Refused):
        pass
    raise Refused(
        "cursor_invalid", "the cursor is of another query: repeat filters and sort, or leave it out", "cursor"
    )


def _aggregated(table: Table, given: Aggregate, *, is_sqlite: bool) -> sa.ColumnElement[Any]:
    if given.function == "count" and given.column is None:
        return sa.func.count()
    if given.column is None:
        raise Refused("filter_invalid", f"{given.function} needs a column", "column")
    column = _column(table, given.column)
    cell = table.rows.c[column.column_id]
    if given.function in {"count", "count_values"}:
        return sa.func.count() if given.function == "count" else sa.func.count(cell)
    if column.type != "number" and (given.function in {"sum", "avg"} or column.type == "boolean"):
        raise Refused("filter_invalid", f"{given.function} of {column.name}: its cells are no numbers", column.name)
    if given.function in {"sum", "avg"}:  # Exact, since doubles in another order add up to something else.
        total = sa.func.exact_sum(cell) if is_sqlite else sa.func.sum(sa.cast(cell, sa.Numeric))
        return total / sa.func.count(cell) if given.function == "avg" else total
    return getattr(sa.func, given.function)(cell)  # type: ignore[no-any-return]
