"""Check and apply a proposal: operations on rows one by one, a change of columns as a whole.

Rule 1: an operation and its outcome are written in one transaction, under tenant, proposal and number. So an apply that
was killed is repeated as it is: what was done is not done again, and the rest follows.
Rule 2: a refusal and its reason are an outcome too; the next operation is tried. Without a database the call ends.
Rule 3: versions count from `base_version`, what the table was when the proposal was written: a cell that somebody else
has changed since is not overwritten.
Rule 4: of two operations on one row of which one deletes it, the first counts (`row_conflict`); two updates are
allowed, with a warning.
Rule 5: columns are named by id or name, and the result names them by id.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa

from services.tables import catalog, rows, values
from services.tables.database import Database
from services.tables.errors import Refused
from services.tables.proposals import columns as column_rules
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


_MAX_CHARACTERS = 200
"""Of each text in a report: a model may have written any name."""
_WHOLE = -1
"""The number of the outcome of a change of columns."""


@dataclass
class RowsApply:
    """One apply of operations on the rows of a table. With `check_only` nothing is written."""

    database: Database
    tenant: str
    key: str
    """Of the outcomes of this proposal."""
    table_id: str
    base_version: int | None
    check_only: bool
    seen: dict[int, str] = field(default_factory=dict)
    """Row -> what an operation has done to it."""
    own: set[int] = field(default_factory=set)
    """The versions that this apply has made."""

    def run(self, operations: Sequence[tuple[int, Any]]) -> dict[str, Any]:
        """Carry out operations, each with its number in the proposal. Raises Refused, code `table_not_found`."""
        errors = [] if operations else ["operations_empty@operations"]

        def checked(connection: sa.Connection) -> list[dict[str, Any]]:
            self.seen = {}  # It may be repeated.
            table = catalog.find(connection, self.tenant, self.table_id)
            return [self._noted(self._outcome(connection, number, given, table)) for number, given in operations]

        if self.check_only:
            found = self.database.read(checked)
        else:
            found = [
                self._noted(self.database.write(partial(self._outcome, number=number, given=given)))
                for number, given in operations
            ]
        if operations and all(each["status"] == "failed" for each in found):
            errors.append("no_valid_operations@operations")
        table = self.database.read(lambda connection: catalog.find(connection, self.tenant, self.table_id))
        return _report("data", table, found, errors)

    def _noted(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Note what the operations after this one must know of it."""
        if outcome["status"] != "failed":
            if outcome["action"] != "add":
                self.seen[outcome["row_id"]] = outcome["action"]
            if not self.check_only:  # Else it is the version of what somebody else has written last.
                self.own.add(outcome["version"])
        return outcome

    def _outcome(
        self, connection: sa.Connection, number: int, given: Any, table: catalog.Table | None = None
    ) -> dict[str, Any]:
        """Carry out one operation, or check it against `table`."""
        table = table or catalog.find(connection, self.tenant, self.table_id, locked=True)
        digest = rows.fingerprint(self.table_id, given)
        if (before := rows.find_outcome(connection, self.tenant, self.key, number, digest)) is not None:
            return dict(before)
        action = _action(given)
        outcome: dict[str, Any] = {"index": number, "action": action, "row_id": None, "version": table.version}
        try:
            operation = check(given, table.columns)
            self._check_seen(operation)
            outcome["row_id"] = operation.row_id or table.next_row_id
            if self.check_only:
                if operation.row_id is not None:
                    checked = None if operation.action == "delete" else operation.cells
                    rows.check_unchanged(connection, table, operation.row_id, checked, self.base_version, self.own)
                outcome |= {"status": "accepted", "cells": operation.cells}
            else:
                table = self._write(connection, table, operation)
                outcome |= {"status": "applied", "version": table.version}
            outcome["warnings"] = operation.warnings
        except Refused as error:
            outcome |= {"status": "failed", "code": error.code, "field": error.field, "reason": error.reason}
        if not self.check_only:
            rows.save_outcome(connection, self.tenant, self.key, number, digest, outcome)
        return outcome

    def _check_seen(self, operation: Operation) -> None:
        """Raise Refused if the operation does not go together with an earlier one; warn of a second update."""
        before = self.seen.get(operation.row_id or 0)
        if before is not None and "delete" in {before, operation.action}:
            reason = f"row {operation.row_id} has a {before} before this {operation.action}"
            raise Refused("row_conflict", reason, "row_id")
        if before is not None:
            operation.warnings.append("row_updated_twice@row_id")

    def _write(self, connection: sa.Connection, table: catalog.Table, operation: Operation) -> catalog.Table:
        if operation.row_id is None:
            return rows.insert(connection, table, [operation.cells])
        if operation.action == "update":
            return rows.update(connection, table, operation.row_id, operation.cells, self.base_version, self.own)
        return rows.delete(connection, table, operation.row_id, self.base_version, self.own)


def apply_to_columns(
    connection: sa.Connection,
    tenant: str,
    proposal_id: str,
    table_id: str | None,
    proposal: Mapping[str, Any],
    *,
    with_samples: bool,
    check_only: bool,
) -> dict[str, Any]:
    """Apply a change of columns as a whole, or make a table, and return what came of it. Raises Refused."""
    table = catalog.find(connection, tenant, table_id, locked=True) if table_id else None
    key, digest = f"proposal:{proposal_id}", rows.fingerprint(table_id, dict(proposal))
    if (before := rows.find_outcome(connection, tenant, key, _WHOLE, digest)) is not None:
        return dict(before)
    checked = column_rules.check(proposal, table.columns if table else (), catalog.new_column_id)
    errors = list(checked.errors)
    if (table is None) != (proposal.get("mode") == "create") and not errors:
        errors.append("mode_invalid@mode")
    operations = proposal.get("operations") or []
    if not errors:
        try:
            if check_only:
                name, own = (table.name, table.table_id) if table else ("", None)
                catalog.named(connection, tenant, proposal.get("table_name") or name, "", own)
            else:
                with connection.begin_nested():
                    table = _changed(connection, tenant, table, proposal, checked, with_samples=with_samples)
        except Refused as error:
            errors = [f"{error.code}@{error.field or 'operations'}: {error.reason}"]
    status = "failed" if errors else "accepted" if check_only else "applied"
    outcomes = [
        {"index": number, "action": _action(each), "status": status, **_refusal(errors, number)}
        for number, each in enumerate(operations)
    ]
    report = _report("schema", table, outcomes, errors, checked.warnings)
    if not check_only:
        rows.save_outcome(connection, tenant, key, _WHOLE, digest, report)
    return report


def _refusal(errors: Sequence[str], number: int) -> dict[str, str]:
    """Return why an operation is not carried out: its own error, or the first one, since the change is a whole."""
    if not errors:
        return {}
    error = next((each for each in errors if each.partition("@")[2].startswith(f"operations[{number}]")), errors[0])
    code, _, place = error.partition("@")
    return {"code": code, "field": place.partition(": ")[0], "reason": error}


def _changed(
    connection: sa.Connection,
    tenant: str,
    table: catalog.Table | None,
    proposal: Mapping[str, Any],
    checked: column_rules.Checked,
    *,
    with_samples: bool,
) -> catalog.Table:
    name, description = proposal.get("table_name"), proposal.get("table_description")
    if table is not None:
        kept = table.description if description is None else description
        return catalog.alter(connection, tenant, table, checked.columns, name or table.name, kept)
    made = catalog.create(connection, tenant, name or "", description or "", checked.columns)
    required = {each.column_id for each in checked.columns if each.required}
    whole = [each for each in checked.samples if required <= {key for key, value in each.items() if value is not None}]
    return rows.insert(connection, made, whole) if with_samples else made


def _report(
    kind: str,
    table: catalog.Table | None,
    operations: Sequence[Mapping[str, Any]],
    errors: Sequence[str],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    done = [each for each in operations if each["status"] != "failed"]
    return {
        "kind": kind,
        "table_id": table.table_id if table else None,
        "version": table.version if table else None,
        "applied": len(done),
        "failed": len(operations) - len(done),
        "counts": dict(Counter(str(each["action"]) for each in done)),
        "errors": [each[:_MAX_CHARACTERS] for each in errors],
        "warnings": [each[:_MAX_CHARACTERS] for each in warnings],
        "operations": [
            {key: value[:_MAX_CHARACTERS] if isinstance(value, str) else value for key, value in each.items()}
            for each in operations
        ],
    }


def _action(given: Any) -> str | None:
    action = given.get("action") if isinstance(given, Mapping) else None
    return action if isinstance(action, str) else None
