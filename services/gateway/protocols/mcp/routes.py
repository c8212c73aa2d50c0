"""`POST /mcp`: one message of a client of the Model Context Protocol.

Rule 1: the gateway keeps no sessions. What a client gets as its session's id is signed for its key, so any gateway
knows it again, and for every other key it does not exist.
Rule 2: the SDK is imported with the first message: it takes a second and 20 MB.
"""

import asyncio
import hmac
import importlib
import json
import secrets
from contextlib import suppress
from typing import Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict

from services.gateway.auth.caller import Caller
from services.gateway.edge.request_body import BodyLimit, parse, read_body
from services.gateway.edge.routing import RequestCaller, body_of, needs, new_router
from services.gateway.errors import InvalidInput, NotFound
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs import control

SESSION_HEADER = "Mcp-Session-Id"
PARSE_ERROR, INVALID_REQUEST, SESSION_NOT_FOUND = -32700, -32600, -32001
_CANCELLED = "notifications/cancelled"
_JSON = {"application/json": {"schema": {"type": "object"}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer.", "content": {**_JSON, "text/event-stream": {"itemSchema": {"type": "object"}}}},
    202: {"description": "The notification was received."},
    "4XX": {"description": "An error of JSON-RPC, or a problem.", "content": _JSON},
}
router = new_router("mcp")


class McpMessage(BaseModel):
    """A request or notification of JSON-RPC, as the Model Context Protocol has them."""

    model_config = ConfigDict(extra="allow")

    jsonrpc: Literal["2.0"]
    method: str
    id: int | str = ""
    params: Any = None


@router.post("/mcp", dependencies=[needs("run")], responses=_ANSWERS, openapi_extra=body_of(McpMessage))
async def mcp(parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Take a message of a client of the Model Context Protocol, and answer it."""
    body = await read_body(request, BodyLimit(parts.settings.max_body_bytes))
    try:
        message = parse(McpMessage, body)
    except InvalidInput as error:
        is_json = error.extra["errors"][0]["field"] != "" or body.lstrip()[:1] == b"["
        return _refusal(400, INVALID_REQUEST if is_json else PARSE_ERROR, error.detail)
    session, opened = request.headers.get(SESSION_HEADER), ""
    if message.method == "initialize":
        session, opened = None, _signed(caller, secrets.token_hex(16))
    elif session is not None and not hmac.compare_digest(session.encode(), _signed(caller, session[:32]).encode()):
        return _refusal(404, SESSION_NOT_FOUND, "There is no such session for this key; initialize another one.")
    elif session is not None and message.method == _CANCELLED:
        await _cancel(parts, caller, session, message.params)
    transport = await asyncio.to_thread(importlib.import_module, ".transport", __package__)
    run = run_of(caller, session, message.id) if session is not None else None
    answer: Response = transport.McpAnswer(body, opened, run, parts.settings.max_body_bytes)
    return answer


def run_of(caller: Caller, session: str, request_id: int | str) -> str:
    """Return the id of the run of a request: a repeated one starts nothing, and its cancellation finds the run."""
    return caller.run_id_for_key(f"mcp\n{session}\n{json.dumps(request_id)}")


def _signed(caller: Caller, nonce: str) -> str:
    """Return the id of a session, which only this key has. It grants nothing: every request shows the key."""
    return nonce + hmac.digest(caller.digest.encode(), nonce.encode(errors="replace"), "sha256").hex()[:32]


async def _cancel(parts: Parts, caller: Caller, session: str, params: Any) -> None:
    """End the run of a request that goes on; one that is over or unknown is ignored."""
    cancelled = params.get("requestId") if isinstance(params, dict) else None
    if not isinstance(cancelled, int | str):
        return
    run = run_of(caller, session, cancelled)
    with suppress(NotFound):
        if not (await parts.runs.get_to_change(caller, run)).has_ended:
            await control.cancel(
                parts, caller.tenant, run, str(params.get("reason") or "cancelled by the client")[:1000]
            )


def _refusal(status: int, code: int, message: str) -> Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Response(json.dumps(body), status, {"Cache-Control": "no-store"}, "application/json")
