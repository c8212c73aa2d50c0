"""Check the operations of a proposal for rows, each for itself: a bad one is refused with its reason, the others stay.

Rule 1: of two operations on one row of which one deletes it, the first counts (`row_conflict`); two updates are
allowed, with a warning.
Rule 2: columns are named by id or name, and the result names them by id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.tables import values
from services.tables.errors import Refused
from services.tables.values import Column

ACTIONS = ("add", "update", "delete")


@dataclass
class Operation:
    """One operation as it can be carried out. `row_id` is None for a new row."""

    action: str
    row_id: int | None = None
    cells: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """Each as `code@field`."""


class SeenRows:
    """What the operations so far have done to which row."""

    def __init__(self) -> None:
        self._actions: dict[int, str] = {}

    def check(self, operation: Operation) -> None:
        """Raise Refused if the operation does not go together with an earlier one; warn of a second update."""
        before = self._actions.get(operation.row_id or 0)
        if before is not None and "delete" in {before, operation.action}:
            reason = f"row {operation.row_id} has a {before} before this {operation.action}"
            raise Refused("row_conflict", reason, "row_id")
        if before is not None:
            operation.warnings.append("row_updated_twice@row_id")

    def note(self, action: str, row_id: int | None) -> None:
        """Take an operation that was accepted."""
        if action != "add" and row_id is not None:
            self._actions[row_id] = action


def check(given: Any, columns: Sequence[Column]) -> Operation:
    """Check one operation, but for whether its row exists. Raises Refused, with the field that is wrong."""
    operation = given if isinstance(given, Mapping) else {}
    action = operation.get("action")
    if action not in ACTIONS:
        raise Refused("action_unknown", f"an action is one of {', '.join(ACTIONS)}", "action")
    found = Operation(action)
    if action != "add":
        row_id = operation.get("row_id")
        if isinstance(row_id, str) and row_id.isascii() and row_id.isdigit() and len(row_id) <= 18:  # noqa: PLR2004
            row_id = int(row_id)
            found.warnings.append("row_id_coerced@row_id")
        if isinstance(row_id, bool) or not isinstance(row_id, int):
            raise Refused("row_id_invalid", "a row_id is the integer that the row has", "row_id")
        found.row_id = row_id
    if action != "delete":
        name = "data" if action == "add" else "changes"
        if not isinstance(operation.get(name), Mapping) or not operation[name]:
            raise Refused(f"{name}_empty", f"{name} is an object that names at least one column", name)
        found.cells, mended = values.cells_of(columns, operation[name], whole=action == "add")
        found.warnings += [f"value_coerced@{each}" for each in mended]
    return found
