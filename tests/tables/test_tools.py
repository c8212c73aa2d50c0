"""Rows and tables through the tools, the same on both databases."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest

from runwire.errors import ToolError
from services.tables.csv_tools import tools_of
from tests.tables.conftest import Tables

COLUMNS: dict[str, Any] = {
    "Name": {"type": "text", "required": True},
    "Status": {"type": "select", "options": ["Active", "Inactive"], "filterDisplay": "tab"},
    "Deals": "number",
    "Since": "date",
    "VIP": "boolean",
}


def refused(tables: Tables, tool: str, **arguments: Any) -> ToolError:
    before = tables.call("list_tables")
    with pytest.raises(ToolError) as caught:
        tables.call(tool, **arguments)
    assert tables.call("list_tables") == before
    return caught.value


def test_a_row_from_its_making_to_its_end(tables: Tables) -> None:
    """What is clear is mended and said; a version says what was changed meanwhile; ids are never used again."""
    table_id = tables.table(**COLUMNS)
    given = {"name": "Ann", "status": "ACTIVE", "Deals": "42", "VIP": "yes", "Since": "2024-03-15T00:00:00Z"}
    row = tables.call("create_row", "k1", table_id=table_id, values=given)
    cells = {"Name": "Ann", "Status": "Active", "Deals": 42, "Since": "2024-03-15", "VIP": True}
    assert row == {
        "row_id": 1,
        "version": 2,
        "cells": cells,
        "warnings": [f"value_coerced@{name}" for name in ("Status", "Deals", "VIP", "Since")],
    }
    assert tables.call("create_row", "k1", table_id=table_id, values=given) == row, "a repeated call adds nothing"
    assert tables.rows(table_id) == [cells]
    update: dict[str, Any] = {"table_id": table_id, "row_id": 1, "base_version": 2}
    assert tables.call("update_row", **update, changes={"Deals": None, "VIP": ""})["version"] == 3
    assert refused(tables, "update_row", **update, changes={"Deals": 1}).code == "row_changed"
    assert tables.call("update_row", **update, changes={"Since": "2025-01-01"})["version"] == 4
    assert refused(tables, "delete_row", **update).code == "row_changed"
    tables.call("delete_row", table_id=table_id, row_id=1)
    assert tables.call("create_row", table_id=table_id, values={"Name": "Bo"})["row_id"] == 2
    assert refused(tables, "update_row", table_id=table_id, row_id=1, changes={"VIP": True}).code == "row_not_found"


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("required_value_missing", {"Deals": 1}),
        ("required_value_missing", {"Name": ""}),
        ("column_unknown", {"Name": "a", 'x"; DROP TABLE tables; --': 1}),
        ("option_invalid", {"Name": "a", "Status": "Maybe"}),
        ("value_invalid", {"Name": "a\0"}),
        ("value_invalid", {"Name": "x" * (1 << 20)}),
        ("value_invalid", {"Name": ["a"]}),
        ("value_invalid", {"Name": "a", "NAME": "b"}),
        *[("value_invalid", {"Name": "a", "Deals": value}) for value in (True, "1_000", "１", "1e400", (1 << 53) + 1)],
        *[("value_invalid", {"Name": "a", "Deals": value}) for value in (math.nan, math.inf, "NaN", "+1", "0x1")],
        *[("value_invalid", {"Name": "a", "Since": value}) for value in ("0000-01-01", "2023-02-29", "10000-01-01", 5)],
        *[("value_invalid", {"Name": "a", "VIP": value}) for value in (1, "ja", "0")],
    ],
)
def test_a_value_that_does_not_fit_is_refused(tables: Tables, code: str, values: dict[str, Any]) -> None:
    """By code, with the column; nothing is changed."""
    table_id = tables.table(**COLUMNS)
    assert refused(tables, "create_row", table_id=table_id, values=values).code == code


def test_numbers_are_exact(tables: Tables) -> None:
    """Up to 2^53 as an integer, else as the double that was given."""
    numbers = [1 << 53, -(1 << 53), 0.1, 1e300, -0.0, 5e-324, 3.0]
    table_id = tables.table(n="number", rows=[{"n": each} for each in numbers])
    assert [row["n"] for row in tables.rows(table_id)] == numbers


def test_another_tenants_table_is_not_there(tables: Tables) -> None:
    """The same answer as for an id that nobody has."""
    table_id = tables.table(a="text", rows=[{"a": "x"}])
    other = Tables(tables.database)
    more_of: dict[str, dict[str, Any]] = {
        "describe_table": {},
        "query_rows": {},
        "create_row": {"values": {"a": "y"}},
        "update_row": {"row_id": 1, "changes": {"a": "y"}},
        "delete_row": {"row_id": 1},
        "delete_table": {},
        "apply_proposal": {"proposal_id": "p", "kind": "data", "operations": [{"action": "delete", "row_id": 1}]},
    }
    for tool, more in more_of.items():
        theirs = refused(other, tool, table_id=table_id, **more)
        assert theirs.reason == refused(other, tool, table_id="tab_nobody", **more).reason
        assert theirs.code == "table_not_found", tool
    assert tables.rows(table_id) == [{"a": "x"}]
    assert other.call("list_tables")["tables"] == []


def test_names_are_never_sql(tables: Tables) -> None:
    """Each is made, filtered, sorted, renamed and removed."""
    names = ["invoiceDate", "INVOICEDATE2", "order", "select *", 'a"b', "a'b", "a;drop", "x%y", "_", "ロウ", "rowid"]
    names += ["col_1"]
    columns = dict.fromkeys(names, cast("Any", "text"))
    table_id = tables.table('"; DROP TABLE tables; --', rows=[dict.fromkeys(names, "v")], **columns)
    for name in names:
        filters = [{"column": name, "op": "equals", "value": "v"}]
        assert tables.rows(table_id, filters=filters, sort=[{"column": name}], columns=[name]) == [{name: "v"}]
    ids = tables.columns(table_id)
    renamed = [{"action": "modify", "column_id": ids[name], "changes": {"name": f"{name}'"}} for name in names[1:]]
    change: dict[str, Any] = {"kind": "schema", "table_id": table_id, "mode": "update"}
    operations = [*renamed, {"action": "remove", "column_id": ids[names[0]]}]
    assert tables.call("apply_proposal", proposal_id="p", **change, operations=operations)["applied"] == 12
    assert tables.rows(table_id) == [{f"{name}'": "v" for name in names[1:]}]


def test_limits_are_named(tables: Tables) -> None:
    """Columns, rows of bytes, names; and a name that another table has, in any case."""
    many = [{"name": f"c{number}", "type": "text"} for number in range(10_000)]
    assert "at most 200" in refused(tables, "create_table", name="x", columns=many).reason
    assert "200 characters" in refused(tables, "create_table", name="x" * 201, columns=many[:1]).reason.replace(",", "")
    table_id = tables.table("Überblick", **dict.fromkeys((f"c{number}" for number in range(5)), cast("Any", "text")))
    wide = {f"c{number}": "x" * 60_000 for number in range(5)}
    assert "262,144 bytes" in refused(tables, "create_row", table_id=table_id, values=wide).reason
    assert refused(tables, "create_table", name=" üBERBLICK ", columns=many[:1]).code == "table_name_taken"
    assert refused(tables, "create_table", name="y", columns=[]).code == "operations_empty"


def test_fifty_clients_lose_no_update(tables: Tables) -> None:
    """Each adds a row, and some count one cell up; the version counts all of it."""
    table_id = tables.table(n="number", who="text", rows=[{"n": 0}])

    def work(number: int) -> None:
        tables.call("create_row", table_id=table_id, values={"who": f"c{number}"})
        while number < 6:
            page = tables.call(
                "query_rows", table_id=table_id, filters=[{"column": "row_id", "op": "equals", "value": 1}]
            )
            base: dict[str, Any] = {"row_id": 1, "base_version": page["version"]}
            with suppress(ToolError):  # Somebody else was first.
                tables.call("update_row", table_id=table_id, **base, changes={"n": page["rows"][0]["cells"]["n"] + 1})
                return

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(work, range(50)))
    found = tables.call("query_rows", table_id=table_id, limit=100, sort=[{"column": "row_id"}])
    assert found["rows"][0]["cells"]["n"] == 6
    assert [row["row_id"] for row in found["rows"]] == list(range(1, 52))
    assert {row["cells"]["who"] for row in found["rows"][1:]} == {f"c{number}" for number in range(50)}
    assert found["version"] == 1 + 1 + 56


def test_writing_tools_need_approval(tables: Tables) -> None:
    """But for `apply_proposal`, which a person has asked for."""
    specs = {tool.name: tool.spec for tool in tools_of(tables.database)}
    asks = {name for name, spec in specs.items() if spec.requires_approval}
    assert asks == {name for name, spec in specs.items() if spec.side_effects == "write"} - {"apply_proposal"}
    assert all(spec.idempotent and spec.output_schema for spec in specs.values())
