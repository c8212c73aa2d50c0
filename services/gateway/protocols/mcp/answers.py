"""What MCP shows of runs: values, files as links, questions to people, lines of progress; and runs as resources.

The form depends on who asks (`Scene`), and in which era of the protocol (`is_new`). Artifacts are resources too.
"""

import asyncio
import base64
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import mcp_types as types
from fastapi import Request
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceLink
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from contracts.runs.events import Step, ToolProgress
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import CALL_RESULT
from contracts.runs.requests import RunStatus
from contracts.wire.names import InvalidName, checked_id
from contracts.wire.records import Record
from services.gateway.auth.caller import Caller
from services.gateway.errors import NotFound
from services.gateway.parts import Parts
from services.messaging.errors import BusError
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
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
Context = ServerRequestContext[Any, Request]
_RESOURCE_NOT_FOUND = -32002
_MAX_RESOURCE_BYTES = 8 << 20


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


class Scene(NamedTuple):
    """Who asks, and where. `run`: the id that a new run gets, if the client's session decides it."""

    parts: Parts
    caller: Caller
    request: Request
    run: str | None


def scene_of(context: Context) -> Scene:
    """Return who sent the request of a context."""
    request = cast("Request", context.request)
    state = request.state
    # What the routes read of a request beside its headers is whether its client is there, which the SDK watches.
    never = cast("Any", asyncio.Event().wait)
    return Scene(request.app.state.parts, state.caller, Request(request.scope, never), state.mcp_run)


def is_new(context: Context) -> bool:
    """Return whether the client speaks 2026-07-28 or later."""
    return context.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS


def check_cursor(params: types.PaginatedRequestParams | None) -> None:
    """Refuse any cursor: each list has one page."""
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "The cursor is unknown: this list has one page.")


async def list_resources(_context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """List none: artifacts are found in results, and by their templates."""
    check_cursor(params)
    return types.ListResourcesResult(resources=[])


async def list_templates(
    _context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """List the two kinds of resources."""
    check_cursor(params)
    artifact = types.ResourceTemplate(
        name="artifact", uri_template=ARTIFACT + "{artifact_id}", description="a file that a run has made"
    )
    run = types.ResourceTemplate(
        name="run", uri_template=RUN + "{run_id}", description="the status of a run, and its result"
    )
    return types.ListResourceTemplatesResult(resource_templates=[artifact, run])


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """Return a run or an artifact that the key may see."""
    parts, caller, *_ = scene_of(context)
    uri = params.uri
    try:
        if uri.startswith(RUN):
            status = (await parts.runs.get(caller, uri.removeprefix(RUN))).status()
            return _resource(uri, "application/json", status.model_dump_json().encode())
        artifact_id = checked_id(uri.removeprefix(ARTIFACT))  # Any other URI is no id.
        await parts.access.get(caller, artifact_id)
        ref, body = await parts.artifacts.read(caller.tenant, artifact_id, limit=_MAX_RESOURCE_BYTES)
        return _resource(uri, ref.mime_type, body)
    except (NotFound, ArtifactNotFound, InvalidName) as error:
        code = types.INVALID_PARAMS if is_new(context) else _RESOURCE_NOT_FOUND
        raise MCPError(code, "There is no such resource.", {"uri": uri[:200]}) from error
    except (ArtifactFailed, BusError) as error:
        reason = getattr(error, "reason", "the message bus does not answer")
        raise MCPError(
            types.INTERNAL_ERROR, f"It cannot be read: {reason}. GET /v1/artifacts streams any size."
        ) from error


def _resource(uri: str, mime_type: str, body: bytes) -> types.ReadResourceResult:
    """Return text where the media type says so and the bytes agree."""
    if mime_type.startswith("text/") or "json" in mime_type:
        with suppress(UnicodeDecodeError):
            text = types.TextResourceContents(uri=uri, mime_type=mime_type, text=body.decode())
            return types.ReadResourceResult(contents=[text])
    blob = types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=base64.b64encode(body).decode())
    return types.ReadResourceResult(contents=[blob])
