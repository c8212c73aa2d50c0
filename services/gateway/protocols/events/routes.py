"""The events of a run or a session, as a stream of Server-Sent Events."""

import re
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, Field

from contracts.wire import keys, subjects
from contracts.wire.base import HttpInput
from contracts.wire.names import InvalidName, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge import routing
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import BadCursor, NotFound
from services.gateway.parts import GatewayParts, Parts
from services.gateway.protocols.events.stream import CURSOR, SESSION_CURSOR, Cursor
from services.gateway.runs.reader import StoredRun
from services.shared.runs.run_follower import RunFollower, SessionFollower

from .stream import EVENT_STREAM, EventStream, described, stream_of_run

SESSION_EVENTS = described("The session's events, without end.", "SessionEvent")
EVENT_ID: dict[str, Any] = {"pattern": f"^({CURSOR})?$", "description": "the id of an event of this run"}
SESSION_EVENT_ID: dict[str, Any] = {
    "pattern": f"^({SESSION_CURSOR})?$",
    "description": "the id of an event of this session",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: EVENT_STREAM,
    204: {"description": "The cursor stands at the end: nothing more will come."},
}

Ticket = Annotated[str | None, Query(max_length=2000, description="in place of an API key")]
_DEFAULT_TICKET_S, _MAX_TICKET_S = 600, 3600

router = routing.new_router(route_class=routing.SessionRoute)


class TicketInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/ticket` and of the same of a session; it may be left out."""

    seconds: int = Field(default=_DEFAULT_TICKET_S, ge=1, le=_MAX_TICKET_S, description="how long it can be used")


class TicketCreated(BaseModel):
    """An event stream that one can open without a key, as often as one likes until it ends."""

    events_url: str
    expires_at: int = Field(description="Unix ms; the stream ends then, with the event `ticket_expired`")


@router.get("/v1/runs/{run_id}/events", tags=["runs"], responses=RESPONSES, response_model=None)
async def run_events(
    run_id: str,
    parts: GatewayParts,
    caller: RequestCaller,
    last_event_id: Annotated[str | None, Header(json_schema_extra=EVENT_ID)] = None,
    after: Annotated[str | None, Query(alias="last_event_id", json_schema_extra=EVENT_ID)] = None,
    artifacts: routing.Form = "values",
    ticket: Ticket = None,  # noqa: ARG001, the guard has read it
) -> Response:
    """Stream a run: what happened so far, then live, until it ends.

    `Last-Event-ID` resumes; 204 when nothing more will come.
    """
    tenant, sent = caller.tenant, last_event_id or after
    parts.streams.check(tenant)
    found, cursor = await parts.runs.get(caller, run_id), _cursor(sent) if sent else Cursor()
    if not await _has_reached(parts, tenant, found, cursor):
        # Another gateway has shown more than this replica of the log holds, or the id is invented.
        found = await parts.runs.current(caller, run_id)
        if not await _has_reached(parts, tenant, found, cursor):
            raise BadCursor
    if found.has_ended and cursor.log == found.last_sequence:
        return Response(status_code=204, headers={routing.RUN_HEADER: run_id})
    follower = RunFollower(parts.bus, tenant, run_id, log_after=cursor.log, stream_after=cursor.stream)
    return stream_of_run(parts, caller, run_id, follower, artifacts, may_wait=found.waits_for_planner)


async def run_at(parts: Parts, caller: Caller, event_id: str) -> str:
    """Return the run that an event belongs to. Raises BadCursor for one that the caller does not see, or that is gone.

    `event_id`: of an event stream of runs.
    """
    cursor = _cursor(event_id)
    sequence = cursor.log or cursor.stream
    subject = await parts.runs.subject_at(subjects.RUNS, sequence) if sequence else None
    try:
        address = subjects.parse(subject or "")
        found = await parts.runs.get(caller, address.run) if address.tenant == caller.tenant else None
    except (InvalidName, NotFound):
        found = None
    if found is None:
        raise BadCursor("Last-Event-ID names no run that is kept here. Without it a new run is started.")
    return found.run_id


def _cursor(event_id: str) -> Cursor:
    try:
        return Cursor.parse(event_id)
    except ValueError as error:
        raise BadCursor from error


async def _has_reached(parts: Parts, tenant: str, found: StoredRun, cursor: Cursor) -> bool:
    if cursor.log > found.last_sequence:
        return False
    return await parts.runs.is_position_of(tenant, found, cursor.log, cursor.stream)


@router.get("/v1/sessions/{session_id}/events", tags=["sessions"], responses={200: SESSION_EVENTS}, response_model=None)
async def session_events(
    session_id: str,
    parts: GatewayParts,
    caller: RequestCaller,
    last_event_id: Annotated[str | None, Header(json_schema_extra=SESSION_EVENT_ID)] = None,
    after: Annotated[str | None, Query(alias="last_event_id", json_schema_extra=SESSION_EVENT_ID)] = None,
    ticket: Ticket = None,  # noqa: ARG001, the guard has read it
) -> Response:
    """Stream a session: what happened so far, then live. `Last-Event-ID` resumes. It has no end."""
    tenant, sent = caller.tenant, last_event_id or after or "0"
    parts.streams.check(tenant)
    await parts.sessions.get(caller, session_id)
    key = keys.session_key(session_id)
    is_cursor = re.fullmatch(SESSION_CURSOR, sent, re.ASCII) is not None
    if not is_cursor or not await parts.sessions.is_position_of(tenant, key, int(sent)):
        raise BadCursor("Last-Event-ID is not the id of an event of this session.")
    return EventStream(parts, SessionFollower(parts.bus, tenant, key, after=int(sent)), caller)


_TICKET: dict[str, Any] = {
    "status_code": 201,
    "response_model": TicketCreated,
    "openapi_extra": routing.body_of(TicketInput, optional=True),
}


@router.post("/v1/runs/{run_id}/ticket", tags=["runs"], **_TICKET)
async def create_run_ticket(run_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Make an address of the run's events that needs no key, for an `EventSource`."""
    found = await parts.runs.get(caller, run_id)
    return await _ticket(parts, request, caller, "/v1/runs/{}/events", found.run_id)


@router.post("/v1/sessions/{session_id}/ticket", tags=["sessions"], **_TICKET)
async def create_session_ticket(
    session_id: str, parts: GatewayParts, request: Request, caller: RequestCaller
) -> Response:
    """Make an address of the session's events that needs no key, for an `EventSource`."""
    await parts.sessions.get(caller, session_id)
    return await _ticket(parts, request, caller, "/v1/sessions/{}/events", session_id)


async def _ticket(parts: Parts, request: Request, caller: Caller, path: str, name: str) -> Response:
    given = await read_json(request, TicketInput, parts.settings.max_body_bytes, optional=True)
    ends_at = unix_ms() + given.seconds * 1000
    ticket = await parts.tickets.new(caller, path.format(name), ends_at)
    url = f"{routing.address_of(request, path.format(quote(name, safe='')))}?ticket={ticket}"
    return routing.json_answer(TicketCreated(events_url=url, expires_at=ends_at), 201)
