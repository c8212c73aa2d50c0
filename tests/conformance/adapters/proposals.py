"""Proposals: checked against a table, shown, applied by the tables service on a database of its own, and summarised."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from contracts.wire.names import new_id
from services.gateway.tables import proposal_view
from services.shared.runs.pages import page_types
from services.shared.runs.pages.registry import load_pages
from services.tables import catalog, rows, values
from services.tables.database import Database
from services.tables.proposals import columns as column_rules
from services.tables.proposals.applying import RowsApply
from services.tables.values import Column
from tests.conformance.compare import assert_same

TENANT = "vectors"
OWN = Path(__file__).parents[1] / "vectors" / "proposals.json"
"""Its tables are there for other files too."""


def check(vector: dict[str, Any]) -> None:
    """Do what `op` says; only the fields that the vector names are compared."""
    given, expected = vector["input"], vector["expected"]
    tables = json.loads(OWN.read_text(encoding="utf-8"))["tables"] | vector["file"].get("tables", {})
    found = OPS[vector["op"]](given | {"table": tables[given.get("table", "T1")]})
    assert_same(projected(found, expected), expected, vector["op"])


def projected(found: Any, on: Any) -> Any:
    """What is found, without the fields that are not asked for."""
    if isinstance(found, dict) and isinstance(on, dict):
        return {key: projected(value, on[key]) for key, value in found.items() if key in on}
    if isinstance(found, list) and isinstance(on, list) and len(found) == len(on):
        return [projected(each, of) for each, of in zip(found, on, strict=True)]
    return found


def validate_schema(given: dict[str, Any]) -> dict[str, Any]:
    """The page, then the rules of the tables. What the envelope refuses, these refuse for the same reason."""
    if errors := unavailable(given, "schema_proposal"):
        return errors
    found = column_rules.check(given["data"], columns_of(given["table"]), catalog.new_column_id)
    codes = {error.partition("@")[0] for error in found.errors}
    assert set(page_types.SCHEMA_PROPOSAL.faults(given["data"])[:1]) <= codes
    names = {} if found.errors else {"resulting_columns": [each.name for each in found.columns]}
    return {"valid": not found.errors, "errors": found.errors, "warnings": found.warnings, **names}


def validate_data(given: dict[str, Any]) -> dict[str, Any]:
    """The page, the envelope, then each operation, by the tables themselves."""
    if errors := unavailable(given, "data_proposal"):
        return errors
    faults = [f"{code}@operations" for code in page_types.DATA_PROPOSAL.faults(given["data"])]
    outcomes: list[dict[str, Any]] = []
    if not faults:
        report = run(given["table"], list(enumerate(given["data"]["operations"])), check_only=True)
        faults, outcomes = report["errors"], report["operations"]
    accepted, failed = ([each for each in outcomes if each["status"] == status] for status in ("accepted", "failed"))
    return {
        "valid": not faults,
        "errors": faults,
        "op_errors": [f"{each['index']}:{each['code']}@{each['field']}" for each in failed],
        "warnings": [f"{each['index']}:{warning}" for each in accepted for warning in each["warnings"]],
        "accepted_ops": [each["index"] for each in accepted],
        "normalized": [normalized(each) for each in accepted],
    }


def unavailable(given: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """What a proposal comes to on a page that has no such proposals."""
    if (page := load_pages().pages.get(given["page"])) is not None and kind in page.payloads:
        return None
    nothing: dict[str, Any] = {name: [] for name in ("op_errors", "warnings", "accepted_ops")}
    return {"valid": False, "errors": ["payload_not_available_on_page"], **nothing}


def normalized(outcome: dict[str, Any]) -> dict[str, Any]:
    """An accepted operation as it would be carried out."""
    cells = {key: values.shown(value) for key, value in outcome["cells"].items()}
    fields: dict[str, dict[str, Any]] = {
        "add": {"data": cells},
        "update": {"row_id": outcome["row_id"], "changes": cells},
        "delete": {"row_id": outcome["row_id"]},
    }
    return {"action": outcome["action"], **fields[outcome["action"]]}


def apply_data(given: dict[str, Any]) -> dict[str, Any]:
    """The tables carry out what is chosen; an operation fails since its column or row does not exist."""
    chosen = []
    for number, operation in enumerate(given["operations"]):
        wrong = {"data": {"none": 1}} if operation["action"] == "add" else {"row_id": 1 << 40}
        if given["checked"][number]:
            chosen.append((number, operation | wrong if number in given["failures"] else operation))
    return proposal_view.render_outcome(len(given["operations"]), run(given["table"], chosen, check_only=False))


def run(table: dict[str, Any], operations: list[tuple[int, Any]], *, check_only: bool) -> dict[str, Any]:
    """The report of the tables, for a fresh table of this kind, the only one: ids of columns are unique."""

    def made(connection: Any) -> catalog.Table:
        for before in catalog.listed(connection, TENANT, "", 10):
            catalog.remove(connection, catalog.find(connection, TENANT, before["table_id"]))
        found = catalog.create(connection, TENANT, new_id(), "", columns_of(table))
        for row_id in table["row_ids"]:
            cells = {each.column_id: "x" for each in found.columns if each.required}
            found = rows.insert(connection, replace(found, next_row_id=row_id), [cells])
        return found

    table_id = database().write(made).table_id
    return RowsApply(database(), TENANT, new_id(), table_id, None, check_only=check_only).run(operations)


def columns_of(table: dict[str, Any]) -> tuple[Column, ...]:
    return tuple(
        Column(each["id"], each["name"], each["type"], each["required"], tuple(each.get("options") or ()))
        for each in table["columns"]
    )


@cache
def database() -> Database:
    folder = tempfile.mkdtemp(prefix="runwire-")
    found = Database(f"sqlite:///{folder}/tables.db")
    found.migrate()
    atexit.register(shutil.rmtree, folder)
    atexit.register(found.close)
    return found


def render_data(given: dict[str, Any]) -> dict[str, Any]:
    return proposal_view.render_data(given["rows"], given["operations"], checked=given.get("checked"))


def action_bar(given: dict[str, Any]) -> dict[str, Any]:
    checked = given.get("checked") or [True] * len(given["operations"])
    return proposal_view.action_bar(given["operations"], sum(checked), len(checked))


def manifest(given: dict[str, Any]) -> dict[str, Any]:
    """The list of the payloads that a conversation has, of its answers alone."""
    return {"manifest": page_types.manifest(list(payloads_in(given)))}


def payloads_in(value: Any) -> Iterator[dict[str, Any]]:
    """What looks like a payload, in the order in which it comes."""
    if isinstance(value, dict) and {"id", "payload_id", "summary"} & set(value):
        yield {"payload_id": value.get("payload_id") or value.get("id"), "summary": value.get("summary")}
    elif isinstance(value, list | dict) and not (isinstance(value, dict) and value.get("role") == "user"):
        for each in value.values() if isinstance(value, dict) else value:
            yield from payloads_in(each)


OPS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "validate_schema": validate_schema,
    "validate_data": validate_data,
    "apply_data": apply_data,
    "render_data": render_data,
    "action_bar": action_bar,
    "manifest": manifest,
    "render_schema": lambda given: proposal_view.render_schema(given["columns"], given),
    "dismiss": lambda given: proposal_view.render_outcome(len(given["operations"]), None),
    "summarize": lambda given: {"summary": page_types.summary(given["type"], given["data"])},
}
