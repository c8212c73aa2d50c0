"""The types of payloads that a model can mark in its text: what they are called there, and on which pages they count.

The envelope is what can be checked of a proposal without a table; the service of the tables checks the rest against the
table as it is then.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SUGGESTED_VALUES, SUGGESTED_ACTIONS = "SUGGESTED_VALUES", "SUGGESTED_ACTIONS"
MODES = ("create", "update")
_NOUNS = {
    "add": "addition",
    "update": "update",
    "delete": "deletion",
    "modify": "modification",
    "remove": "removal",
    "reorder": "reorder",
}


@dataclass(frozen=True, slots=True)
class PayloadType:
    """One type. `faults`: the codes of what is wrong with the envelope of data; `summary`: one line about data."""

    name: str
    marker: str
    description: str
    faults: Callable[[Mapping[str, Any]], list[str]]
    summary: Callable[[Mapping[str, Any]], str]


def _faults_of_rows(data: Mapping[str, Any]) -> list[str]:
    operations = data.get("operations")
    if isinstance(operations, list) and operations:
        return []
    return ["operations_missing" if operations is None else "operations_empty"]


def _faults_of_columns(data: Mapping[str, Any]) -> list[str]:
    mode = data.get("mode")
    wrong = [] if mode in MODES else ["mode_missing" if mode is None else "mode_invalid"]
    return wrong + _faults_of_rows(data)


def _counted(data: Mapping[str, Any]) -> str:
    """Count operations by their action, in the order in which the actions come."""
    counts = Counter(_NOUNS.get(each["action"], each["action"]) for each in data.get("operations") or [])
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())


def _summary_of_columns(data: Mapping[str, Any]) -> str:
    what = _counted(data) or "empty proposal"
    return f'Create table: "{data["table_name"]}" — {what}' if data["mode"] == "create" else f"Schema proposal: {what}"


PAYLOAD_TYPES = {
    each.name: each
    for each in (
        PayloadType(
            "schema_proposal",
            "SCHEMA_PROPOSAL",
            "A proposal to make a table or to change its columns",
            _faults_of_columns,
            _summary_of_columns,
        ),
        PayloadType(
            "data_proposal",
            "DATA_PROPOSAL",
            "A proposal to change rows",
            _faults_of_rows,
            lambda data: f"Data proposal: {_counted(data) or 'empty'}",
        ),
    )
}
BY_MARKER = {each.marker: each for each in PAYLOAD_TYPES.values()}
MARKERS = (SUGGESTED_VALUES, SUGGESTED_ACTIONS, *BY_MARKER)
"""All of them are hidden on every page, also those that do not count there."""
PAYLOADS_OF_PAGES = {
    "tables_list": ("schema_proposal",),
    "table_edit": ("schema_proposal",),
    "table_view": ("schema_proposal", "data_proposal"),
}
"""By page: the types that count there; the first one of which there is a payload wins."""


def summary(name: str, data: Any) -> str:
    """Return one line about a payload, which never fails."""
    found = PAYLOAD_TYPES.get(name)
    if found is None:
        return f"Unknown payload type: {name}"
    try:
        return found.summary(data)
    except (AttributeError, KeyError, TypeError):
        return found.description


def manifest(payloads: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the list of a conversation's payloads, `payload_id` and `summary` each; None if there are none."""
    lines = [
        f"- [{each['payload_id']}] {each['summary']}"
        for each in payloads
        if each.get("payload_id") and each.get("summary")
    ]
    return "\n".join(["AVAILABLE PAYLOADS (use get_payload tool to retrieve full data):", *lines]) if lines else None
