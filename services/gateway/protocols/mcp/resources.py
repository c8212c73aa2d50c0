"""Who asks over MCP, and in which era of the protocol; artifacts and runs as its resources."""

import asyncio
import base64
from contextlib import suppress
from typing import Any, NamedTuple, cast

import mcp_types as types
from fastapi import Request
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from contracts.wire.names import InvalidName, checked_id
from services.gateway.auth.caller import Caller
from services.gateway.errors import NotFound
from services.gateway.parts import Parts
from services.messaging.errors import BusError
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound

from . import answers

Context = ServerRequestContext[Any, Request]
_RESOURCE_NOT_FOUND = -32002
_MAX_RESOURCE_BYTES = 8 << 20


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
    return Scene(request.app.state.parts, state.caller, Request(request.scope, _never), state.mcp_run)


async def _never() -> Any:
    await asyncio.Event().wait()


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
        name="artifact", uri_template=answers.ARTIFACT + "{artifact_id}", description="a file that a run has made"
    )
    run = types.ResourceTemplate(
        name="run", uri_template=answers.RUN + "{run_id}", description="the status of a run, and its result"
    )
    return types.ListResourceTemplatesResult(resource_templates=[artifact, run])


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """Return a run or an artifact that the key may see."""
    parts, caller, *_ = scene_of(context)
    uri = params.uri
    try:
        if uri.startswith(answers.RUN):
            status = (await parts.runs.get(caller, uri.removeprefix(answers.RUN))).status()
            return _resource(uri, "application/json", status.model_dump_json().encode())
        artifact_id = checked_id(uri.removeprefix(answers.ARTIFACT))  # Any other URI is no id.
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
