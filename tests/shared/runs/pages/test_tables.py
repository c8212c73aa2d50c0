"""What the pages of the tables show the model."""

from typing import Any

import pytest

from contracts.runs.pages import Page
from services.shared.runs.pages import registry

STAGE = {"column_id": "col_b", "name": "Stage", "type": "select", "required": False}
TABLE: dict[str, Any] = {
    "table_id": "tab_1",
    "name": 'Job "hunt"',
    "description": "Where I applied",
    "version": 7,
    "rows": 30,
    "columns": [
        {**STAGE, "column_id": "col_a", "name": "Company", "type": "text", "required": True},
        {**STAGE, "options": ["Sent", "Talk"], "filterDisplay": "tab"},
    ],
}
TABLE["columns"][0] |= {"options": None, "filterDisplay": None}
X = "x" * 300
ROWS = {"version": 6, "rows": [{"row_id": n, "cells": {"Company": "x" * 900, "Stage": None}} for n in (1, 2)]}
CHOSEN = {"version": 8, "rows": [{"row_id": n, "cells": {"Company": "C", "Stage": "Sent"}} for n in (2, 40)]}


def test_rows_are_shown_with_their_columns() -> None:
    """Long cells are cut; the version is the oldest that was read; selected rows are shown whole."""
    page = Page(name="table_view", table_id="tab_1", selection=[2, 40], filters={"Stage": "Sent"}, sort=["Company"])
    reads = registry.TABLE_VIEW.reads_of(page)
    assert [(each.tool, each.args.get("limit")) for each in reads] == [
        ("describe_table", None),
        ("query_rows", 20),
        ("query_rows", 50),
    ]
    shown = registry.TABLE_VIEW.shown(page, [TABLE, ROWS, CHOSEN])
    assert shown.base_version == 6
    assert shown.columns == [
        {"id": "col_a", "name": "Company", "type": "text", "required": True},
        {"id": "col_b", "name": "Stage", "type": "select", "required": False},
    ]
    assert shown.text.split("\n") == [
        'Table: "Job \\"hunt\\"" [tab_1], version 7',
        'Description: "Where I applied"',
        "Columns (2):",
        '- "Company" [col_a]: text, required',
        '- "Stage" [col_b]: select, optional, options ["Sent","Talk"], filter as tab',
        "Rows: 30",
        *(f'Row #{n}: {{"Company":"{X}… (900 characters)","Stage":null}}' for n in (1, 2)),
        "Showing 2 of 30.",
        "Selected rows (2): #2, #40",
        *(f'Row #{n}: {{"Company":"C","Stage":"Sent"}}' for n in (2, 40)),
        'Active filters: {"Stage":"Sent"}',
        'Sorted by: ["Company"]',
    ]


@pytest.mark.parametrize(
    ("kind", "page", "results", "text", "version"),
    [
        (registry.TABLE_VIEW, {}, [], "No table is open.", None),
        (registry.TABLE_VIEW, {"table_id": "t"}, [None, ROWS], "", None),
        (registry.TABLE_VIEW, {"table_id": "t"}, [{**TABLE, "columns": [], "rows": 0}, None], "Rows: 0", 7),
        (registry.TABLE_EDIT, {"table_id": "t"}, [{**TABLE, "rows": 0}], "Rows: 0.", 7),
        (registry.TABLE_EDIT, {"table_id": "t"}, [TABLE], "may lose what they hold.", 7),
        (registry.TABLES_LIST, {}, [None], "", None),
        (registry.TABLES_LIST, {}, [{"tables": [], "next": None}], "Tables (0):\n(none yet)", None),
        (
            registry.TABLES_LIST,
            {},
            [{"tables": [{"table_id": "tab_1", "name": "A", "description": "", "columns": 2, "rows": 9}], "next": "A"}],
            'Tables (1+):\n- "A" [tab_1]: 2 columns, 9 rows\n(There are more; list_tables lists them.)',
            None,
        ),
    ],
)
def test_what_is_away_or_empty(kind: Any, page: dict[str, Any], results: list[Any], text: str, version: int) -> None:
    """The text says so, or is empty where a read failed, which whoever makes the reads names."""
    shown = kind.shown(Page(name=kind.name, **page), results)
    assert shown.text.endswith(text)
    assert bool(shown.text) == bool(text)
    assert shown.base_version == version


def test_rows_have_room_for_what_counts() -> None:
    """However long they are."""
    rows = {"version": 7, "rows": [{"row_id": n, "cells": {f"c{i}": "y" * 300 for i in range(30)}} for n in range(20)]}
    text = registry.TABLE_VIEW.shown(Page(name="table_view", table_id="t"), [TABLE, rows]).text
    assert len(text) < registry.MAX_ROWS_CHARACTERS + 1_000
    assert text.endswith("Showing 1 of 30.")
