"""Filters, sorts, pages and figures, the same on both databases."""

from typing import Any

import pytest

from runwire.errors import ToolError
from tests.tables.conftest import Tables

SCORES = [3, None, 1, 1, None, 2, None, 5, None, 4, 1, 2]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ([("score", False)], [1, 1, 1, 2, 2, 3, 4, 5, None, None, None, None]),
        ([("score", True)], [5, 4, 3, 2, 2, 1, 1, 1, None, None, None, None]),
        ([("score", False), ("row_id", True)], [1, 1, 1, 2, 2, 3, 4, 5, None, None, None, None]),
        ([("name", False)], None),
        ([("flag", True), ("name", False), ("score", False)], None),
    ],
)
def test_pages_join_to_the_whole(tables: Tables, sort: list[tuple[str, bool]], expected: list[Any] | None) -> None:
    """Over nulls and equal values, at each size of a page."""
    rows = [
        {"score": score, "name": ["b", "A", "ä", "Z", None][at % 5], "flag": at % 3 == 0 or None}
        for at, score in enumerate(SCORES)
    ]
    table_id = tables.table(score="number", name="text", flag="boolean", rows=rows)
    query: dict[str, Any] = {
        "table_id": table_id,
        "sort": [{"column": name, "descending": down} for name, down in sort],
    }
    whole = tables.call("query_rows", **query, limit=100)["rows"]
    assert expected is None or [row["cells"]["score"] for row in whole] == expected
    if sort[0][0] == "name":
        assert [row["cells"]["name"] for row in whole] == ["A"] * 3 + ["b"] * 3 + ["Z"] * 2 + ["ä"] * 2 + [None] * 2
    for limit in (1, 2, 5, 11, 12, 13):
        found: list[Any] = []
        cursor = None
        while True:
            page = tables.call("query_rows", **query, limit=limit, cursor=cursor)
            found, cursor = found + page["rows"], page["next_cursor"]
            if cursor is None:
                break
        assert found == whole, limit


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("contains", "a_b", ["a_b"]),
        ("contains", "%", ["50%"]),
        ("contains", "\\", ["c\\d", "C\\D"]),
        ("starts_with", "_", []),
        ("contains", "[", ["[x]"]),
        ("contains", "STRASSE", ["Straße"]),
        ("contains", "ÉTÉ", ["été"]),
        ("equals", "50%", ["50%"]),
        ("equals", "C\\d", []),
        ("not_equals", "a_b", ["axb", "50%", "50 x", "c\\d", "C\\D", "[x]", "Straße", "été", None]),
        ("is_empty", None, [None]),
        ("in", ["axb", None], ["axb", None]),
        ("less", "A", ["50%", "50 x", "[x]"]),
        ("greater_or_equal", "STRASSE", ["Straße", "été"]),
    ],
)
def test_filters_of_texts(tables: Tables, op: str, value: Any, expected: list[str | None]) -> None:
    """Patterns are literal, case does not count beyond ASCII either, and rows that are not A may be empty."""
    texts = ["a_b", "axb", "50%", "50 x", "c\\d", "C\\D", "[x]", "Straße", "été", None]
    table_id = tables.table(t="text", more="text", rows=[{"t": text, "more": "x"} for text in texts])
    found = tables.rows(table_id, filters=[{"column": "t", "op": op, "value": value}], columns=["t"])
    assert [row["t"] for row in found] == expected


def test_filters_are_joined(tables: Tables) -> None:
    """All of them, or any; of dates, numbers and booleans too."""
    rows = [{"n": at, "d": f"2024-01-0{at}", "b": at % 2 == 0} for at in range(1, 6)]
    table_id = tables.table(n="number", d="date", b="boolean", rows=rows)
    terms = [("n", "greater", 2), ("d", "less_or_equal", "2024-01-04"), ("b", "equals", "yes")]
    filters = [{"column": column, "op": op, "value": value} for column, op, value in terms]
    assert [row["n"] for row in tables.rows(table_id, filters=filters)] == [4]
    assert tables.call("query_rows", table_id=table_id, filters=filters, match="any")["total"] == 5
    for column, op, value in [("n", "contains", "1"), ("b", "less", True), ("n", "equals", "x"), ("n", "in", 3)]:
        with pytest.raises(ToolError) as caught:
            tables.rows(table_id, filters=[{"column": column, "op": op, "value": value}])
        assert caught.value.code == "filter_invalid"


def test_a_cursor_belongs_to_its_query(tables: Tables) -> None:
    """Another sort, or what is no cursor, is refused."""
    table_id = tables.table(n="number", rows=[{"n": 1}, {"n": 2}])
    cursor = tables.call("query_rows", table_id=table_id, limit=1)["next_cursor"]
    for query in ({"cursor": cursor, "sort": [{"column": "n"}]}, {"cursor": "x"}, {"cursor": "WyJ4IiwgW11d"}):
        with pytest.raises(ToolError) as caught:
            tables.call("query_rows", table_id=table_id, **query)
        assert caught.value.code == "cursor_invalid"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], [0, 0, None, None, None, None]),
        ([0.1] * 10 + [None], [11, 10, 1, 0.1, 0.1, 0.1]),
        ([None], [1, 0] + [None] * 4),
    ],
)
def test_figures(tables: Tables, values: list[Any], expected: list[Any]) -> None:
    """Rows and values are counted apart; of no values there is no figure."""
    table_id = tables.table(n="number", t="text", rows=[{"n": each, "t": "x"} for each in values])
    functions = ("count", "count_values", "sum", "avg", "min", "max")
    of = [{"function": each, "column": "n"} for each in functions]
    assert tables.call("query_rows", table_id=table_id, aggregates=of)["aggregates"] == expected
