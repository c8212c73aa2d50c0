"""Sessions: list, read, set the context, watch, delete."""

import re
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import Match
from starlette.types import Scope

from contracts.sessions.records import SessionContextInput, SessionEntry, SessionStatus
from contracts.wire import keys
from services.gateway.edge.compression import json_response
from services.gateway.edge.open_streams import OpenStreams
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import Filter, RequestCaller, body_of, needs, new_router
from services.gateway.errors import BadCursor
from services.gateway.protocols.events.encoder import SESSION_CURSOR
from services.gateway.protocols.events.stream import EventStream
from services.gateway.runs.index import PAGE_CURSOR, SessionIndex
from services.gateway.sessions.control import SessionControl
from services.gateway.sessions.reader import SessionReader
from services.messaging.connection import Bus
from services.shared.runs.run_follower import SessionFollower

EVENTS: dict[str, Any] = {"description": "The session's events, without end.", "content": {"text/event-stream": {}}}
EVENT_ID: dict[str, Any] = {"pattern": f"^({SESSION_CURSOR})?$", "description": "the id of an event of this session"}


class SessionRoute(APIRoute):
    """A route with the id of a session in its address, which is any text: also one with slashes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the address as it was sent; its parts are decoded afterwards."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        match, child = super().matches({**scope, "path": raw.partition(b"?")[0].decode("latin-1")})
        given = child.get("path_params", {})
        return match, {**child, "path_params": {**given, **{name: unquote(given[name]) for name in given}}}


class SessionPage(BaseModel):
    """Some sessions, newest first."""

    sessions: list[SessionEntry]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


class SessionRoutes:
    """Routes of sessions."""

    def __init__(
        self,
        bus: Bus,
        sessions: SessionReader,
        index: SessionIndex,
        control: SessionControl,
        streams: OpenStreams,
        heartbeat_s: float,
        max_body_bytes: int,
    ) -> None:
        self._bus = bus
        self._sessions = sessions
        self._index = index
        self._control = control
        self._streams = streams
        self._heartbeat_s = heartbeat_s
        self._max_body_bytes = max_body_bytes

    def router(self) -> APIRouter:
        """Return the routes."""
        router = new_router("sessions")
        router.get("/v1/sessions")(self.list_sessions)
        router.route_class = SessionRoute
        path = "/v1/sessions/{session_id}"
        router.get(path, response_model=SessionStatus)(self.get_session)
        router.delete(path, status_code=202, dependencies=[needs("run")], response_class=Response)(self.delete_session)
        router.put(
            f"{path}/context",
            status_code=204,
            dependencies=[needs("run")],
            response_class=Response,
            responses={202: {"description": "It will be set; it is not yet."}},
            openapi_extra=body_of(SessionContextInput),
        )(self.set_context)
        router.get(f"{path}/events", responses={200: EVENTS}, response_model=None)(self.session_events)
        return router

    async def list_sessions(
        self,
        caller: RequestCaller,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        cursor: Annotated[str | None, Query(max_length=100, pattern=PAGE_CURSOR)] = None,
        user_id: Filter = None,
    ) -> SessionPage:
        """List sessions, newest first. Runs without a session are in the list of runs only.

        With a filter a page may be short: go on while there is a `next_cursor`.
        """
        sessions, next_cursor = await self._index.page(caller, limit, cursor, user_id=user_id)
        return SessionPage(sessions=sessions, next_cursor=next_cursor)

    async def get_session(self, session_id: str, request: Request, caller: RequestCaller) -> Response:
        """Return a session: its newest runs, those that wait, its summary, its context and its open pauses.

        A run that was requested without a session is the only one of the session `run-<its id>`.
        """
        status = await self._sessions.status(caller, session_id)
        return await json_response(status.model_dump_json().encode(), request.headers)

    async def delete_session(self, session_id: str, caller: RequestCaller) -> None:
        """Delete a session with its runs and artifacts. Open runs are cancelled first."""
        await self._control.delete(caller, await self._sessions.get(caller, session_id))

    async def set_context(self, session_id: str, request: Request, response: Response, caller: RequestCaller) -> None:
        """Set values that later runs of the session are shown as untrusted data."""
        context = await read_json(request, SessionContextInput, self._max_body_bytes)
        session = await self._sessions.get(caller, session_id)
        if not await self._control.set_context(caller, session, context.values):
            response.status_code = 202

    async def session_events(
        self,
        session_id: str,
        caller: RequestCaller,
        last_event_id: Annotated[str | None, Header(json_schema_extra=EVENT_ID)] = None,
        after: Annotated[str | None, Query(alias="last_event_id", json_schema_extra=EVENT_ID)] = None,
    ) -> Response:
        """Stream a session: what happened so far, then live. `Last-Event-ID` resumes. It has no end."""
        self._streams.check(caller.tenant)
        await self._sessions.get(caller, session_id)
        sent = last_event_id or after
        if sent and not re.fullmatch(SESSION_CURSOR, sent, re.ASCII):
            raise BadCursor("Last-Event-ID is not the id of an event of this session.")
        key = keys.session_key(session_id)
        cursor = int(sent or 0)
        if not await self._sessions.is_position_of(caller.tenant, key, cursor):
            raise BadCursor("Last-Event-ID is not the id of an event of this session.")
        follower = SessionFollower(self._bus, caller.tenant, key, after=cursor)
        return EventStream(follower, self._streams, self._heartbeat_s, caller.tenant)
