"""What a run is for a client: a value, its files as links, a question to a person, lines of progress. Pure."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from mcp_types import ResourceLink

from contracts.runs.events import Step, ToolProgress
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import CALL_RESULT
from contracts.runs.requests import RunStatus
from contracts.wire.records import Record
from services.shared.redaction.stored_values import as_reference

ARTIFACT, RUN = "runwire://artifacts/", "runwire://runs/"
DECISION = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["approve", "reject"]}, "note": {"type": "string"}},
    "required": ["decision"],
}
"""What is asked about a call that needs an approval."""
_FORM_TYPES = frozenset({"string", "number", "integer", "boolean"})
_MAX_TEXT_CHARACTERS = 2_000


class Answer(NamedTuple):
    """The end of a run."""

    value: Any
    is_error: bool
    links: list[ResourceLink]


def answer_of(status: RunStatus) -> Answer:
    """Return what a run that has ended came to: the result of its one call, or its answer with how it ended."""
    payload = status.payload
    if payload is None:
        raise ValueError("the run goes on")
    links: list[ResourceLink] = []
    has_more = False
    for tool, fields in payload.artifacts.items():
        for path, value in fields.items():
            if (ref := as_reference(value)) is None:
                has_more = True
                continue
            name = ref.filename or f"{tool}.{path}"
            uri = ARTIFACT + ref.artifact_id
            links.append(ResourceLink(uri=uri, name=name, mime_type=ref.mime_type, size=ref.size))
    if has_more:  # People see such values and models do not: a client may read them, and its model is not shown them.
        uri = RUN + status.run_id
        links.append(ResourceLink(uri=uri, name="what the run has made", mime_type="application/json"))
    if status.status == "done" and CALL_RESULT in payload.extra:
        return Answer(payload.extra[CALL_RESULT], is_error=False, links=links)
    value = {
        "run_id": status.run_id,
        "session_id": status.session_id,
        "status": status.status,
        "reason": status.reason,
        "code": status.code,
        "answer": payload.raw_answer,
        "sources": [source.model_dump(mode="json", exclude_none=True) for source in payload.sources],
        "warnings": payload.warnings,
    }
    shown = {name: each for name, each in value.items() if each not in (None, [])}
    return Answer(shown, is_error=status.status != "done" or not payload.raw_answer, links=links)


def waiting_text(status: RunStatus, wait_tool: str) -> str:
    """Say what a run waits for, and how it goes on."""
    asked = [f"- {question(pause)} (pause {pause.pause_id})" for pause in status.pauses]
    if status.paused is not None:
        asked.append(f"- more of its budget: {status.paused}")
    where = f"POST /v1/runs/{status.run_id}/resume (or /top-up), `runwire approve` or the playground"
    return "\n".join(
        [
            f"Not done yet: the run {status.run_id} waits for a person.",
            *asked,
            f"A person decides by {where}. Do not repeat the call. Its result: {wait_tool} with this run_id.",
        ]
    )


def question(pause: OpenPause) -> str:
    """Return what a person is asked."""
    if pause.reason != "approval" and pause.title:
        return pause.title[:_MAX_TEXT_CHARACTERS]
    called = f"{pause.tool}({json.dumps(pause.arguments or {}, ensure_ascii=False)})" if pause.tool else pause.reason
    return " ".join(filter(None, (pause.title, f"May this call be made? {called}")))[:_MAX_TEXT_CHARACTERS]


def form_of(pause: OpenPause) -> dict[str, Any] | None:
    """Return the form of an answer, as flat as MCP has them; None: the pause needs more than that."""
    if pause.reason in {"approval", "confirmation"}:
        return DECISION
    schema = pause.input_schema or {}
    properties = schema.get("properties")
    is_flat = isinstance(properties, dict) and all(
        isinstance(each, dict) and each.get("type") in _FORM_TYPES for each in properties.values()
    )
    return schema if pause.reason == "input" and schema.get("type") == "object" and is_flat else None


def progress_of(data: bytes) -> Iterable[str]:
    """Return what a record of a run says of its progress, in a line for each."""
    if b'"tool_progress"' not in data and b'"step"' not in data:
        return
    for event in Record.model_validate_json(data).events:
        if isinstance(event, ToolProgress):
            part = "" if event.fraction is None else f" ({event.fraction:.0%})"
            yield f"{event.tool}: {event.message}{part}"
        elif isinstance(event, Step) and event.status == "started":
            yield ", ".join(call.tool for call in event.calls) or event.node
