"""What an answer of a server says, as the events of a call; and its tools as specifications. Pure.

Rule 1: `structuredContent` is the value, and text is never parsed. Without it the text is the value.
Rule 2: images, sounds and files become artifacts, as streams of one call: the model reads no base64. The same base64
inside the value is replaced by the stream's name.
Rule 3: a failure is exempt from the output schema: the model reads its text.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from contracts.tools.messages import ArtifactPiece, PauseReply, ToolCall, ToolFailure, ToolSpec
from contracts.wire.base import MAX_INLINE_BYTES
from services.shared.redaction.json_values import cut
from services.shared.tools.builtin import model_name
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event

from .config import McpServer, matches

STATE = "mcp"
_PIECE_CHARACTERS = 96 << 10
_MAX_BINARY_CHARACTERS, _MAX_ATTACHMENTS = 28 << 20, 32
_MAX_FAILURE_CHARACTERS = 4000
_MAX_DESCRIPTION_CHARACTERS = 16 << 10
_BINARY = re.compile(
    r"(?!text/|application/(?:json|xml))[A-Za-z0-9][A-Za-z0-9._+-]{0,63}/[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
)
"""Media types of streams whose base64 is decoded: of any other, base64 would be the text."""


def spec_of(server: McpServer, tool: Mapping[str, Any]) -> ToolSpec:
    """Return the specification of a tool as its server lists it. What has the wrong form is as if it were not there.

    Raises ValueError, for one that cannot be offered.
    """
    name = str(tool["name"])
    description, title = (str(tool.get(key) or "") for key in ("description", "title"))
    text = description if title in description else f"{title}\n{description}".strip()
    if len(text) > _MAX_DESCRIPTION_CHARACTERS:
        limit = f"{len(text):,} characters, and at most {_MAX_DESCRIPTION_CHARACTERS:,} are taken"
        raise ValueError(f"its description has {limit}")
    hints: Any = tool.get("annotations")
    hints = hints if server.trust_hints and isinstance(hints, dict) else {}
    reads = matches(name, server.read_only) or hints.get("readOnlyHint") is True
    repeats = reads or matches(name, server.idempotent) or hints.get("idempotentHint") is True
    output = tool.get("outputSchema") if server.output == "structured" else None
    input_schema = tool.get("inputSchema")
    shown = model_name(server.prefix + name)
    return ToolSpec(
        name=shown,
        description=text,
        input_schema=input_schema if isinstance(input_schema, dict) else {"type": "object"},
        output_schema=output if isinstance(output, dict) else None,
        idempotent=repeats,
        side_effects="read" if reads else "external",
        timeout_s=server.timeout_s,
        concurrency=server.concurrency,
        tags=[server.tag, *([] if shown == server.prefix + name else [f"mcp-name:{name[:200]}"])],
        requires_approval=server.approval == "always" or (server.approval == "unless_read_only" and not reads),
    )


def params_of(call: ToolCall) -> dict[str, Any]:
    """Return the parameters of a call, with what people have answered since its first round."""
    params: dict[str, Any] = {"arguments": call.args}
    kept = call.state.get(STATE) if call.answers else None
    if isinstance(kept, dict):
        last = call.answers[-1]
        action = "decline" if last.decision == "reject" else "accept"
        key = str(kept.get("key"))
        content = {"content": last.input} if action == "accept" and isinstance(last.input, dict) else {}
        params["inputResponses"] = {key: {"action": action, **content}}
        if kept.get("state") is not None:
            params["requestState"] = kept["state"]
    return params


def events_of(
    request: int, call: ToolCall, server: McpServer, spec: ToolSpec, result: Mapping[str, Any]
) -> list[Event]:
    """Return the events that the result of a call is. The last one ends the call."""
    if result.get("resultType") == "input_required":
        return [_pause(call, server, result)]
    texts, attachments = _content(result.get("content"))
    text = "\n".join(texts)
    if result.get("isError") is True:
        reason = text[:_MAX_FAILURE_CHARACTERS] or "the tool failed and did not say why"
        return [events.Failure(ToolFailure(reason=reason))]
    pieces = [piece for stream, (kind, data) in attachments.items() for piece in _pieces(stream, kind, data)]
    value = result.get("structuredContent")
    if value is not None:
        kept = cut(text, MAX_INLINE_BYTES)
        pieces.append(events.Content(kept, is_cut=kept != text))
        value = _without(value, {data: stream for stream, (_, data) in attachments.items()})
    elif spec.output_schema is not None:
        remedy = f'if text is enough, the operator sets `output = "text"` for the server {server.name}'
        reason = f"{call.tool} gave no structuredContent, which its outputSchema requires; {remedy}"
        return [events.Failure(ToolFailure(reason=reason, code="invalid_result"))]
    body = json.dumps(text if value is None else value, ensure_ascii=False)
    return [*pieces, events.Result(request, body.encode(errors="replace"))]


def _pause(call: ToolCall, server: McpServer, result: Mapping[str, Any]) -> Event:
    match list((result.get("inputRequests") or {}).items()):
        case [(key, {"method": "elicitation/create", "params": {"requestedSchema": dict() as schema, **params}})]:
            message = str(params.get("message", ""))[:_MAX_FAILURE_CHARACTERS]
        case _:
            reason = f"{server.name} asks for what is not offered: one form at a time, no model and no folders"
            return events.Failure(ToolFailure(reason=reason))
    state = {STATE: {"key": key, "state": result.get("requestState")}}
    pause = PauseReply(
        number=len(call.answers),
        title=message[:200],
        payload={"server": server.name, "message": message},
        input_schema=schema,
        state=state,
    )
    return events.Pause(pause.model_dump_json().encode())


def _content(blocks: Any) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Return the texts, also for what is left out, and by stream id the media type and base64 of all else."""
    texts: list[str] = []
    attachments: dict[str, tuple[str, str]] = {}
    room = _MAX_BINARY_CHARACTERS
    for block in blocks if isinstance(blocks, list) else ():
        match block:
            case {"type": "text", "text": str() as text} | {"type": "resource", "resource": {"text": str() as text}}:
                texts.append(text)
                continue
            case {"type": "resource_link", "uri": str() as uri}:
                texts.append(f"[{block.get('title') or block.get('name') or 'resource'}]({uri})")
                continue
            case {"type": "image" | "audio" as kind, "data": str() as data}:
                mime = block.get("mimeType")
            case {"type": "resource", "resource": {"blob": str() as data, **rest}}:
                kind, mime = "file", rest.get("mimeType")
            case _:
                unknown = block.get("type") if isinstance(block, dict) else None
                texts.append(f"(a part of the kind {str(unknown)[:40]} is left out)")
                continue
        data = re.sub(r"\s+", "", data.partition(",")[2] if data.startswith("data:") else data)
        stream = f"{kind}-{len(attachments) + 1}"
        if not _is_base64(data):
            texts.append(f"(one {kind} is left out: its data is no base64)")
        elif len(data) > room or len(attachments) >= _MAX_ATTACHMENTS:
            texts.append(f"(one {kind} is left out: the answer holds too many bytes, or too many files)")
        else:
            attachments[stream] = (mime if isinstance(mime, str) and _BINARY.fullmatch(mime) else "bytes", data)
            texts.append(f"({stream}: an artifact)")
            room -= len(data)
    return texts, attachments


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def _pieces(stream: str, kind: str, data: str) -> Iterator[Event]:
    for start in range(0, len(data), _PIECE_CHARACTERS):
        piece = ArtifactPiece(
            stream_id=stream,
            seq=start // _PIECE_CHARACTERS,
            chunk=data[start : start + _PIECE_CHARACTERS],
            done=start + _PIECE_CHARACTERS >= len(data),
            artifact_type=kind,
        )
        yield events.Piece(piece.model_dump_json().encode())


def _without(value: Any, known: Mapping[str, str]) -> Any:
    """Return a value with the names of streams in place of their base64."""
    if not known:
        return value
    if isinstance(value, str):
        return known.get(value.partition(",")[2] if value.startswith("data:") else value, value)
    if isinstance(value, dict):
        return {key: _without(item, known) for key, item in value.items()}
    return [_without(item, known) for item in value] if isinstance(value, list) else value
