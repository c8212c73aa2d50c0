"""How a proposal is shown. The cases that clients have to agree on are vectors of tests/conformance."""

from typing import Any

import pytest

from services.gateway.tables.proposal_view import render_data, render_outcome, render_schema

ADD = {"action": "add", "data": {"n": "New"}}
UPDATE = {"action": "update", "row_id": 5, "changes": {"n": "B", "d": 2}}
AGAIN = {"action": "update", "row_id": 5, "changes": {"d": 3, "v": True}}
DELETE = {"action": "delete", "row_id": 7}
ROWS = [{"id": 5, "data": {"n": "A", "d": 0, "v": False}}, {"id": 7, "data": {}}]


@pytest.mark.parametrize(
    ("given", "summary", "select", "apply", "enabled"),
    [
        ({}, "1 addition, 1 update, 1 deletion", "Deselect All", "Apply All 3", True),
        ({"checked": [True, False, True]}, "1 addition, 1 update, 1 deletion", "Select All", "Apply 2 of 3", True),
        ({"checked": [False] * 3}, "1 addition, 1 update, 1 deletion", "Select All", "Apply 0 of 3", False),
        ({"reasons": {1: "no such row"}}, "1 addition, 1 update, 1 deletion", "Deselect All", "Apply All 2", True),
        ({"is_applying": True}, "1 addition, 1 update, 1 deletion", "Deselect All", "Apply All 3", False),
    ],
)
def test_the_bar(given: dict[str, Any], summary: str, select: str, apply: str, *, enabled: bool) -> None:
    """What can be applied is what is chosen; one that was refused does not count."""
    bar = render_data(ROWS, [ADD, UPDATE, DELETE], **given)["action_bar"]
    assert [bar["summary"], bar["select_label"], bar["apply_label"], bar["apply_enabled"]] == [
        summary,
        select,
        apply,
        enabled,
    ]
    assert bar["dismiss_enabled"] != given.get("is_applying", False)


def test_rows() -> None:
    """A refused operation is not chosen and says why; two updates of a row are one row; old values are JSON."""
    shown = render_data(ROWS, [ADD, UPDATE, AGAIN, DELETE], reasons={0: "the name is taken"})["rows"]
    assert [(row["key"], row["checked"], row["reason"]) for row in shown] == [
        ("op:0", False, "the name is taken"),
        ("row:5", True, None),
        ("row:7", True, None),
    ]
    assert [(cell["column_id"], cell["tooltip"]) for cell in shown[1]["changed_cells"]] == [
        ("n", "Was: A"),
        ("d", "Was: 0"),
        ("v", "Was: false"),
    ]
    assert (shown[2]["struck"], shown[2]["changed_cells"]) == (True, [])


def test_what_is_no_operation_is_shown() -> None:
    """A model may write anything."""
    odd: list[dict[str, Any]] = [{}, {"row_id": 5, "changes": [1]}, {"row_id": [5]}, {"action": []}]
    assert len(render_data(ROWS, odd)["rows"]) == 2
    odd += [{"action": "add", "column": 7}, {"action": "modify", "column_id": "s", "changes": 7}]
    assert len(render_schema(["s"], {"operations": odd})["columns"]) == 2


def test_columns() -> None:
    """Each column at its place to come, with what changes of it; an unknown anchor appends, none is the first place."""
    operations = [
        {"action": "add", "column": {"name": "City"}, "after_column_id": "gone"},
        {"action": "modify", "column_id": "s", "changes": {"name": "Stage", "required": False, "options": ["a", "b"]}},
        {"action": "reorder", "column_id": "d"},
        {"action": "remove", "column_id": "n"},
    ]
    view = render_schema(["n", "s", "d"], {"mode": "update", "operations": operations})
    assert [(each.get("id") or each["name"], each["mark"], each.get("note")) for each in view["columns"]] == [
        ("d", "reorder", None),
        ("n", "remove", "Data will be lost"),
        ("s", "modify", "renamed: Stage, optional, options: a, b"),
        ("City", "add", None),
    ]
    assert (view["summary"], view["apply_label"]) == ("1 new column, 1 modification, 1 removal, 1 move", "Apply")
    samples = [{"City": "Berlin"}, {"City": "Rome"}]
    new = render_schema([], {"mode": "create", "operations": operations[:1], "sample_rows": samples})
    assert new["samples"] == {"label": "Include sample data (2 rows)", "checked": False, "rows": samples}
    assert new["apply_label"] == "Create Table"


def test_outcomes() -> None:
    """The counts are those of the tables; what was dismissed has none."""
    done = [{"index": 0, "status": "applied"}, {"index": 2, "status": "failed"}]
    view = render_outcome(3, {"operations": done, "applied": 1})
    assert view["statuses"] == ["success", "skipped", "error"]
    assert view["toast"] == "Applied 1 of 2 - 1 failed"
    assert render_outcome(1, {"operations": done[:1], "applied": 1})["toast"] == "All 1 changes applied"
    dismissed = render_outcome(2, None)
    assert (dismissed["statuses"], dismissed["toast"]) == (["skipped"] * 2, None)
