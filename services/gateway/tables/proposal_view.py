"""How a proposal is shown, whatever draws it: rows with their marks, the bar with its buttons, the columns to come.

Pure. `GET /v1/proposals/{id}` has it as `view`, and clients are tested by it.

Rule 1: nothing is decided here. An operation that was refused says why and cannot be chosen; all others are chosen at
first.
Rule 2: operations on rows are chosen one by one, a change of columns is applied as a whole.
Rule 3: after an apply the counts are those of the tables, not those of the proposal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from services.shared.runs.pages.page_types import counted

Operations = Sequence[Mapping[str, Any]]
_OF_ROWS = {"add": "addition", "update": "update", "delete": "deletion"}
_OF_COLUMNS = {"add": "new column", "modify": "modification", "remove": "removal", "reorder": "move"}
_TINTS = {"add": "green", "update": "none", "delete": "red", "modify": "amber", "remove": "red", "reorder": "blue"}
"""Of an update the cells are tinted, not the row."""


def render_data(
    rows: Sequence[Mapping[str, Any]],
    operations: Operations,
    *,
    checked: Sequence[bool] | None = None,
    reasons: Mapping[int, str] | None = None,
    is_applying: bool = False,
) -> dict[str, Any]:
    """Show rows `{id, data}` under a proposal: its new rows in their order, then the rows as they stand in the table.

    `checked`: which operations are chosen, by number; `reasons`: why one cannot be.
    """
    reasons = reasons or {}
    chosen = [number not in reasons and (checked is None or checked[number]) for number in range(len(operations))]
    of_rows: dict[Any, list[int]] = {}
    shown = []
    for number, operation in enumerate(operations):
        if operation.get("action") == "add":
            shown.append(_row(f"op:{number}", "add", checked=chosen[number], reason=reasons.get(number)))
        else:
            row_id = operation.get("row_id")
            of_rows.setdefault(row_id if isinstance(row_id, int | str) else None, []).append(number)
    for row in rows:
        numbers = of_rows.get(row["id"], [])
        if not numbers:
            shown.append(_row(f"row:{row['id']}", "none"))
            continue
        first = operations[numbers[0]]
        changes: dict[str, Any] = {}
        for number in numbers:
            changes |= _object(operations[number].get("changes"))
        reason = next((reasons[number] for number in numbers if number in reasons), None)
        is_chosen = any(chosen[number] for number in numbers)
        action = str(first.get("action"))
        found = _row(f"row:{row['id']}", action, checked=is_chosen, reason=reason)
        if action == "update":
            found["changed_cells"] = [
                {"column_id": column, "tint": "amber", "tooltip": f"Was: {_text(row['data'].get(column))}"}
                for column in changes
            ]
        shown.append(found)
    choosable = len(operations) - len(reasons)
    return {
        "rows": shown,
        "action_bar": action_bar(operations, sum(chosen), choosable, is_applying=is_applying),
        "cell_editing_enabled": False,
    }


def _row(key: str, kind: str, *, checked: bool | None = None, reason: str | None = None) -> dict[str, Any]:
    is_gone = kind == "delete"
    return {
        "key": key,
        "kind": kind,
        "tint": _TINTS.get(kind, "none"),
        "bar": {"add": "green", "update": "amber"}.get(kind, "none"),
        "checked": checked,
        "reason": reason,
        "struck": is_gone,
        "reduced_opacity": is_gone,
        "changed_cells": [],
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    if value is None or value == "":
        return "(empty)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def action_bar(operations: Operations, chosen: int, choosable: int, *, is_applying: bool = False) -> dict[str, Any]:
    """Show the bar over a proposal for rows, of whose operations `chosen` of `choosable` are chosen."""
    return {
        "summary": _summary(operations, _OF_ROWS),
        "select_label": "Deselect All" if chosen == choosable else "Select All",
        "apply_label": f"Apply All {choosable}" if chosen == choosable else f"Apply {chosen} of {choosable}",
        "apply_enabled": chosen > 0 and not is_applying,
        "dismiss_enabled": not is_applying,
    }


def _summary(operations: Operations, nouns: Mapping[str, str]) -> str:
    return counted(noun for action, noun in nouns.items() for each in operations if each.get("action") == action)


def render_schema(columns: Sequence[str], data: Mapping[str, Any]) -> dict[str, Any]:
    """Show the columns of a table, by id, under a proposal for columns; removed ones stay until it is applied."""
    operations = data.get("operations") or []
    shown: list[dict[str, Any]] = [{"id": each, "mark": "none"} for each in columns]

    def place(of: Any) -> int | None:
        return next((at for at, each in enumerate(shown) if of is not None and each.get("id") == of), None)

    for operation in operations:
        action, at = str(operation.get("action")), place(operation.get("column_id"))
        after = place(operation.get("after_column_id"))
        mark = {"mark": action, "tint": _TINTS.get(action, "none")}
        if action == "add":
            column = {"name": _object(operation.get("column")).get("name"), **mark}
            shown.insert(len(shown) if after is None else after + 1, column)
        elif at is not None and action == "reorder":
            column = shown.pop(at)
            after = place(operation.get("after_column_id"))
            shown.insert(0 if after is None else after + 1, column | mark)
        elif at is not None and action == "remove":
            shown[at] = {"id": shown[at]["id"], **mark, "struck": True, "note": "Data will be lost"}
        elif at is not None:
            shown[at] = {"id": shown[at]["id"], **mark, "note": _changes(_object(operation.get("changes")))}
    view: dict[str, Any] = {"columns": shown, "summary": _summary(operations, _OF_COLUMNS)}
    if samples := data.get("sample_rows") if data.get("mode") == "create" else None:
        view["samples"] = {"label": f"Include sample data ({len(samples)} rows)", "checked": False, "rows": samples}
    apply_label = "Create Table" if data.get("mode") == "create" else "Apply"
    return view | {"apply_label": apply_label, "atomic_apply": True, "per_operation_checkbox": False}


def _changes(changes: Mapping[str, Any]) -> str:
    found = []
    for key, value in changes.items():
        if key == "name":
            found.append(f"renamed: {value}")
        elif key == "required":
            found.append("required" if value else "optional")
        else:
            found.append(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return ", ".join(found)


def render_outcome(count: int, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Show what came of a proposal of `count` operations: the report of the tables, or None if it was dismissed."""
    done = {each["index"]: each["status"] for each in report["operations"]} if report is not None else {}
    applied = report["applied"] if report is not None else 0
    failed = len(done) - applied
    statuses = {"applied": "success", "failed": "error"}
    toast = f"Applied {applied} of {len(done)} - {failed} failed" if failed else f"All {applied} changes applied"
    return {
        "executed": sorted(done),
        "statuses": [statuses[done[number]] if number in done else "skipped" for number in range(count)],
        "applied": applied,
        "failed": failed,
        "refetch": applied > 0,
        "toast": None if report is None else toast,
        "proposal_cleared": True,
        "data_changed": applied > 0,
    }
