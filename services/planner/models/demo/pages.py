"""The demo model on a page: proposes a table, columns or rows from the words of the question.

It tells first what the user has decided about earlier proposals, with the real counts.
"""

import re
from dataclasses import replace
from typing import Any

from contracts.runs.pages import PageView
from services.planner.conversation.encoding import compact
from services.planner.models.demo.evidence import gather
from services.planner.models.demo.situation import Situation

_NEW = re.compile(r"\b(?:track|record|keep|manage|organi[sz]e|new table|table (?:for|of)|list of)\b", re.IGNORECASE)
_ADD = re.compile(r"\b(?:add|fill|insert|propose|suggest|enter|put)\b", re.IGNORECASE)
_COLUMN = re.compile(
    r"\bcolumns?\s+(?:called|named|for)?\s*[\"“']?(?P<name>[\w ]{1,40}?)[\"”']?\s*(?:$|[.,!?])", re.IGNORECASE
)
_SUBJECT = re.compile(
    r"\b(?:track(?: of)?|record|keep|manage|organi[sz]e|table (?:for|of)|list of)\s+(?:of\s+)?(?:my|our|the|all)?\s*"
    r"(?P<name>[\w -]+?)\s*(?:$|[.,!?]|\bwith\b)",
    re.IGNORECASE,
)
_WITH = re.compile(r"\bwith\s+(?:the\s+)?(?:columns?\s+)?(?P<names>[\w ,]+)", re.IGNORECASE)
_SET = re.compile(
    r"\b(?:set|change)\s+(?:the\s+)?(?P<column>[\w ]+?)\s+of\s+row\s+(?P<row>\d+)\s+to\s+(?P<value>[\w-]+)",
    re.IGNORECASE,
)
_DELETE = re.compile(r"\b(?:delete|remove)\s+row\s+(?P<row>\d+)", re.IGNORECASE)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_USUAL_ROWS, _MOST_ROWS = 3, 10
_STATUS = {"name": "Status", "type": "select", "options": ["Open", "In progress", "Done"]}
_COLUMNS: dict[str, list[dict[str, Any]]] = {
    "applic": [
        {"name": "Company", "type": "text", "required": True},
        {"name": "Role", "type": "text"},
        {
            "name": "Stage",
            "type": "select",
            "options": ["Applied", "Interview", "Offer", "Rejected"],
            "filterDisplay": "tab",
        },
        {"name": "Applied on", "type": "date"},
    ],
    "expens": [
        {"name": "What", "type": "text", "required": True},
        {"name": "Amount", "type": "number"},
        {"name": "Day", "type": "date"},
    ],
}
"""The beginning of a word of the question -> columns. Every other subject has a name, a status and a date."""


def play(situation: Situation) -> tuple[str, str] | None:
    """Return reasoning and text of a reply on a page; None: the question asks for nothing of the page."""
    view = situation.page
    if view is None:
        return None
    proposed = _proposal(situation, view)
    if proposed is None and not view.notes:
        return None
    if proposed is not None:
        said, marker, value = proposed
        block = [said, f"{marker}: {compact(value)}"]
    else:
        first = (
            "Add three rows" if "data_proposal" in view.payloads and view.columns else "Make a table for my expenses"
        )
        values = [{"label": each, "value": each} for each in (first, "What can you do?")]
        block = [f"SUGGESTED_VALUES: {compact(values)}"]
    return "I look at the page and at what became of proposals.", "\n\n".join([*view.notes, *block])


def _proposal(situation: Situation, view: PageView) -> tuple[str, str, dict[str, Any]] | None:
    """Return a sentence, the marker and the data of a proposal; None: the question asks for none."""
    question, allowed = situation.question, set(view.payloads)
    column = _COLUMN.search(question) if _ADD.search(question) else None
    if view.columns and column is not None and "schema_proposal" in allowed:
        added = {"action": "add", "column": {"name": column["name"].strip().capitalize(), "type": "text"}}
        return "I propose one more column.", "SCHEMA_PROPOSAL", {"mode": "update", "operations": [added]}
    if view.columns and "data_proposal" in allowed and (operations := _operations(situation, view.columns)):
        noun = "rows" if all(each["action"] == "add" for each in operations) else "changes"
        return f"I propose {len(operations)} {noun}.", "DATA_PROPOSAL", {"operations": operations}
    if not _NEW.search(question) or "schema_proposal" not in allowed or view.columns:
        return None
    subject = _SUBJECT.search(question)
    name = (subject["name"] if subject else "things").strip().title()
    columns = _columns(question)
    shown = [{**each, "id": each["name"]} for each in columns]
    data = {
        "mode": "create",
        "table_name": name,
        "table_description": f"Made for: {question[:200]}",
        "operations": [{"action": "add", "column": each} for each in columns],
        "sample_rows": _rows(situation, shown)[:2],
    }
    return f"I propose a table for {name.lower()}.", "SCHEMA_PROPOSAL", data


def _operations(situation: Situation, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that the question adds, sets a cell of, or deletes."""
    question = situation.question
    changed = [
        {"action": "update", "row_id": int(each["row"]), "changes": {each["column"].capitalize(): each["value"]}}
        for each in _SET.finditer(question)
    ]
    deleted = [{"action": "delete", "row_id": int(each["row"])} for each in _DELETE.finditer(question)]
    rest = replace(situation, question=_DELETE.sub("", _SET.sub("", question)))
    added = _rows(rest, columns) if _ADD.search(rest.question) else []
    return [*({"action": "add", "data": row} for row in added), *changed, *deleted]


def _columns(question: str) -> list[dict[str, Any]]:
    named = _WITH.search(question)
    if named is not None:
        names = [each.strip().capitalize() for each in re.split(r",|\band\b", named["names"]) if each.strip()]
        return [
            {"name": each, "type": "text", "required": number == 0} for number, each in enumerate(dict.fromkeys(names))
        ]
    known = next((found for word, found in _COLUMNS.items() if word in question.lower()), None)
    return known or [{"name": "Name", "type": "text", "required": True}, _STATUS, {"name": "Date", "type": "date"}]


def _rows(situation: Situation, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return made-up rows, as many as the question says; what it has in quotes is the first column of each."""
    evidence = gather(situation.question, situation.asked_on)
    named = [str(each.value) for each in evidence.quoted]
    words = situation.question.lower().split()
    said = next((int(each.value) for each in evidence.numbers if isinstance(each.value, int)), None)
    count = said or next((_NUMBERS[word] for word in words if word in _NUMBERS), _USUAL_ROWS)
    count = len(named) or max(1, min(count, _MOST_ROWS))
    rows = []
    for number in range(count):
        row: dict[str, Any] = {}
        for at, column in enumerate(columns):
            options = column.get("options") or []
            match column["type"]:
                case "number":
                    row[column["name"]] = number + 1
                case "boolean":
                    row[column["name"]] = number % 2 == 0
                case "date":
                    row[column["name"]] = situation.asked_on
                case "select" if options:
                    row[column["name"]] = options[number % len(options)]
                case "text":
                    row[column["name"]] = named[number] if named and at == 0 else f"{column['name']} {number + 1}"
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows
