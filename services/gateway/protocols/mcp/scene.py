"""Who asks over MCP, and in which era of the protocol."""

import asyncio
from typing import Any, NamedTuple, cast

import mcp_types as types
from fastapi import Request
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from services.gateway.auth.caller import Caller
from services.gateway.parts import Parts

Context = ServerRequestContext[Any, Request]


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
