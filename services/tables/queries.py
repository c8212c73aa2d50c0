"""Read rows: filters and sorts are data, and become expressions over physical columns.

Rule 1: rows without a value come last, in either direction; equal rows follow by row id. Texts are compared folded, by
code points, of which the first 100 decide an order: the same on both databases.
Rule 2: a page continues behind the last row of the one before, by that row's values: rows that come or go meanwhile
shift nothing. A cursor belongs to its query.
Rule 3: `not_equals` means the rows that do not have the value, so those without a value too.
"""

import base64
import json
import math
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
_SUMS = {"sum", "avg"}
_FIRST_ROWS = 1000
_MIN_EXTRACTED, _MAX_EXTRACTED = math.ldexp(1, -900), math.ldexp(1, 980)
"""Between them no part of a value under- or overflows."""

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
    connection: sa.Connection, table: Table, selection: Selection, limit: int, cursor: str | None, header: Any = None
) -> tuple[list[sa.RowMapping], str | None]:
    """Return the rows of one page, and the cursor of the next, for the same query and `header`. Raises Refused."""
    keys = _keys(table, selection)
    query = selection.model_dump(include={"filters", "match", "sort"})
    query_id = row_writes.fingerprint(table.table_id, query, header)[:16]
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
    where, asked = condition(table, selection), [(each.function, _aggregated(table, each)) for each in of]
    others = [found.label(f"a{at}") for at, (function, found) in enumerate(asked) if function not in _SUMS]
    row = connection.execute(sa.select(*others).where(where).select_from(table.rows)).one() if others else ()
    figures = iter(row)
    return [
        values.shown(_sum_of(connection, table, found, where, function) if function in _SUMS else next(figures))
        for function, found in asked
    ]


def _sum_of(
    connection: sa.Connection, table: Table, cell: sa.ColumnElement[Any], where: sa.ColumnElement[bool], function: str
) -> float | None:
    """Return the sum or average of cells, the same for every order of the rows; None without a value.

    A database adds doubles up as they come, and rounds each time. So of each value two parts are added up that are so
    short that their sums are exact (S. M. Rump, T. Ogita, S. Oishi, Accurate floating-point summation, 2008, 3). What
    they leave out of 100,000 values is in all below 2^-47 of the largest one, of a million below 2^-38.
    """
    number = sa.func.count(cell) if function == "avg" else sa.literal(1)  # A sum is not divided.
    figures: list[sa.ColumnElement[Any]] = [sa.func.max(sa.func.abs(cell)), number]
    guess, sums = 0.0, list[float]()
    if connection.dialect.name == "sqlite":
        # Reading all rows a second time costs a third: the first ones mostly tell how large the others are.
        some = sa.select(cell.label("cell")).where(where).limit(_FIRST_ROWS).subquery()
        guess = connection.execute(sa.select(sa.func.max(sa.func.abs(some.c.cell)))).scalar_one() or 1.0
        figures += _sums(cell, guess, table.row_count)
    largest, count, *sums = connection.execute(sa.select(*figures).where(where)).one()
    if largest is None:
        return None
    is_short = _MIN_EXTRACTED < largest < _MAX_EXTRACTED
    if is_short and (not sums or _exponent(guess) != _exponent(largest)):
        sums = list(connection.execute(sa.select(*_sums(cell, largest, table.row_count)).where(where)).one())
    cells = sa.select(cell).where(where, cell.is_not(None))
    try:
        total = math.fsum(sums if is_short else connection.execute(cells).scalars())
    except OverflowError:
        total = math.inf
    # 15 digits of what is as good as exact are the same on both databases.
    return float(f"{total / count:.15g}")


def _exponent(largest: float) -> int:
    """Return the power of two above a value, in steps of four, so that it is the same for most guesses."""
    return -(-math.frexp(largest)[1] // 4) * 4


def _sums(cell: sa.ColumnElement[Any], largest: float, rows: int) -> list[sa.ColumnElement[Any]]:
    """Return the sums of both parts of all cells, where none is larger than `largest`."""
    spare_bits = rows.bit_length() + 1
    exponent = max(-900, min(990, _exponent(largest))) + spare_bits
    coarse_grid, fine_grid = (
        sa.literal(math.ldexp(1, each), sa.Double) for each in (exponent, exponent - 52 + spare_bits)
    )
    coarse = (cell + coarse_grid) - coarse_grid
    return [sa.func.sum(coarse), sa.func.sum((cell - coarse + fine_grid) - fine_grid)]


def chosen(table: Table, names: Sequence[str] | None) -> list[Column]:
    """Return the columns with these names; None: all. Raises Refused."""
    return list(table.columns) if names is None else [_column(table, name) for name in names]


def _column(table: Table, name: str) -> Column:
    if name == ROW_ID and values.column_of(table.columns, name) is None:
        return _ROW_ID_COLUMN
    return table.column(name)


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
    if column is _ROW_ID_COLUMN and found is not None and abs(found) > 2**53:
        raise Refused("filter_invalid", f"{ROW_ID}: there is no such row", ROW_ID)
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


def _aggregated(table: Table, given: Aggregate) -> sa.ColumnElement[Any]:
    """Return the expression of an aggregate, of a sum its cells. Raises Refused."""
    if given.function == "count" and given.column is None:
        return sa.func.count()
    if given.column is None:
        raise Refused("filter_invalid", f"{given.function} needs a column", "column")
    column = _column(table, given.column)
    cell = table.rows.c[column.column_id]
    if given.function in {"count", "count_values"}:
        return sa.func.count() if given.function == "count" else sa.func.count(cell)
    if column.type != "number" and (given.function in _SUMS or column.type == "boolean"):
        raise Refused("filter_invalid", f"{given.function} of {column.name}: its cells are no numbers", column.name)
    if given.function in _SUMS:
        return cell
    return getattr(sa.func, given.function)(cell)  # type: ignore[no-any-return]
