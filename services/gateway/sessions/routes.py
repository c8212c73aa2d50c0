"""Sessions: list, read, set the context, delete."""

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from contracts.sessions.records import SessionContextInput, SessionEntry, SessionStatus
from services.gateway.edge.compression import json_response
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import Filter, RequestCaller, SessionRoute, body_of, needs, new_router
from services.gateway.parts import GatewayParts
from services.gateway.runs.index import PAGE_CURSOR

from . import control

router = new_router("sessions", SessionRoute)


class SessionPage(BaseModel):
    """Some sessions, newest first."""

    sessions: list[SessionEntry]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


@router.get("/v1/sessions", response_model=SessionPage)
async def list_sessions(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=100, pattern=PAGE_CURSOR)] = None,
    user_id: Filter = None,
) -> Response:
    """List sessions, newest first. Runs without a session are in the list of runs only.

    With a filter a page may be short: go on while there is a `next_cursor`.
    """
    sessions, next_cursor = await parts.index.page(SessionEntry, caller, limit, cursor, user_id=user_id)
    return await json_response(SessionPage(sessions=sessions, next_cursor=next_cursor), request.headers)


@router.get("/v1/sessions/{session_id}", response_model=SessionStatus)
async def get_session(session_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Return a session: its newest runs, those that wait, its summary, its context and its open pauses.

    A run that was requested without a session is the only one of the session `run-<its id>`.
    """
    return await json_response(await parts.sessions.status(caller, session_id), request.headers)


@router.delete("/v1/sessions/{session_id}", status_code=202, dependencies=[needs("run")], response_class=Response)
async def delete_session(session_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete a session with its runs and artifacts. Open runs are cancelled first."""
    await control.delete(parts, caller, await parts.sessions.get_to_change(caller, session_id))


@router.put(
    "/v1/sessions/{session_id}/context",
    status_code=204,
    dependencies=[needs("run")],
    response_class=Response,
    responses={202: {"description": "It will be set; it is not yet."}},
    openapi_extra=body_of(SessionContextInput),
)
async def set_context(
    session_id: str, parts: GatewayParts, request: Request, response: Response, caller: RequestCaller
) -> None:
    """Set values that later runs of the session are shown as untrusted data."""
    context = await read_json(request, SessionContextInput, parts.settings.max_body_bytes)
    session = await parts.sessions.get_to_change(caller, session_id)
    if not await control.set_context(parts, caller, session, context.values):
        response.status_code = 202
