"""Who is answered how: one route per thing that a client may do.

Routes check, call one function, and give its answer.
"""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel

from contracts.ids import InvalidName, checked_id
from contracts.runs import RunAccepted, RunInput, RunStatus, State
from contracts.tools import ToolSpec
from services.gateway.artifacts.downloads import takes_gzip
from services.gateway.artifacts.inlining import Form, Room, inlined, inlined_record
from services.gateway.auth import OPEN_PATHS, Guard
from services.gateway.errors import BadCursor, InvalidInput, NotFound, NotRunning
from services.gateway.event_stream import RUN_HEADER, EventStream, OpenStreams
from services.gateway.frames import CURSOR, Cursor
from services.gateway.open_streams import while_connected
from services.gateway.schemas import CancelInput, ChatAnswer, ChatInput, RunPage, ToolList, TopUpInput
from services.gateway.settings import GatewaySettings
from services.gateway.stored_runs.deletions import Deletions
from services.gateway.stored_runs.index import PAGE_CURSOR, RunIndex
from services.gateway.stored_runs.reader import FoundRun, Runs
from services.gateway.submissions.accept import Asking
from services.gateway.submissions.request_body import idempotency_key, parse, read_body
from services.gateway.submissions.submit import Intake
from services.messaging.connection import Bus
from services.shared.artifacts.client import ArtifactClient
from services.shared.run_follower import RunFollower
from services.shared.tool_catalogue import refused_tools

STREAMED: dict[str, Any] = {
    "description": "The run's events, as docs/http.md says.",
    "content": {"text/event-stream": {}},
}
EVENT_ID: dict[str, Any] = {"pattern": f"^({CURSOR})?$", "description": "the id of an event of this run"}
_SETTLING_S = 0.2
_WORTH_BYTES = 8 << 10
_LOOKS = 5


@dataclass
class Gateway:
    """What the routes work with. `tools` gives the live catalogue."""

    settings: GatewaySettings
    bus: Bus
    guard: Guard
    runs: Runs
    intake: Intake
    asking: Asking
    deletions: Deletions
    index: RunIndex
    artifacts: ArtifactClient
    tools: Callable[[], Mapping[str, ToolSpec]]
    streams: OpenStreams
    room: Room = field(default_factory=Room)

    def follow(self, tenant: str, run: str, artifacts: Form, after: Cursor | None = None) -> EventStream:
        """Stream a run from a cursor on; `artifacts`: how they stand in its end."""
        after = after or Cursor()
        finish = partial(inlined_record, self.artifacts, tenant, self.room) if artifacts == "values" else None
        follower = RunFollower(self.bus, tenant, run, log_after=after.log, stream_after=after.stream)
        return EventStream(follower, self.streams, self.settings.heartbeat_s, tenant, run, finish)

    async def find(self, tenant: str, run: str) -> FoundRun:
        """Return the tenant's run. Raises NotFound."""
        found = await self.runs.find(tenant, self.checked(run))
        if found is None:
            raise NotFound
        return found

    @staticmethod
    def checked(name: str) -> str:
        """Return the id of a run or artifact. Raises NotFound: what is none names nothing."""
        try:
            return checked_id(name)
        except InvalidName as error:
            raise NotFound from error


async def _gateway(request: Request) -> Gateway:
    # A coroutine, as below: FastAPI calls plain functions in another thread, and each request would wait for two of
    # them.
    gateway: Gateway = request.app.state.gateway
    return gateway


async def admitted(request: Request) -> str:
    """Return the caller's tenant. Raises KeyMissing and Forbidden."""
    return (await _gateway(request)).guard.admit(request.headers)


async def closed(request: Request) -> None:
    """Refuse a request without a key on every path that is not open. Raises KeyMissing and Forbidden."""
    if request.scope["path"] not in OPEN_PATHS:
        await admitted(request)


async def known_query(request: Request) -> None:
    """Raises InvalidInput for fields of the query that the route does not have: a misspelt one would be passed over without a word."""
    unknown = request.query_params.keys() - {field.alias for field in request.scope["route"].dependant.query_params}
    if unknown:
        raise InvalidInput.unknown(sorted(unknown))


Here = Annotated[Gateway, Depends(_gateway)]
Tenant = Annotated[str, Depends(admitted)]
router = APIRouter(dependencies=[Depends(known_query)])


def body_of(model: type[BaseModel], *, keyed: bool = False, optional: bool = False) -> dict[str, Any]:
    """OpenAPI's words for what `bodies` reads itself: a JSON body, bounded, and the caller's idempotency key."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"}}
    return {"requestBody": {"required": not optional, "content": content}, "parameters": [key] if keyed else []}


@router.post(
    "/v1/runs",
    status_code=202,
    response_model=RunAccepted,
    responses={200: STREAMED},
    openapi_extra=body_of(RunInput, keyed=True),
    tags=["runs"],
)
async def create_run(request: Request, here: Here, tenant: Tenant, artifacts: Form = "values") -> Response:
    """Ask a question: a run begins. With `Accept: text/event-stream` the answer is the run's event stream.

    With an `Idempotency-Key` header the same key and body always give the same run.
    """
    is_streamed = "text/event-stream" in request.headers.get("accept", "")
    if is_streamed:
        here.streams.check(tenant)
    run = await here.asking.accept(request, tenant, RunInput)
    url = f"/v1/runs/{run}"
    if is_streamed:
        stream = here.follow(tenant, run, artifacts)
        stream.headers["Location"] = url
        return stream
    accepted = RunAccepted(run_id=run, url=url, events_url=f"{url}/events")
    return Response(accepted.model_dump_json(), 202, {"Location": url, RUN_HEADER: run}, "application/json")


@router.get("/v1/runs", tags=["runs"])
async def list_runs(
    here: Here,
    tenant: Tenant,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=100, pattern=PAGE_CURSOR)] = None,
    status: State | None = None,
) -> RunPage:
    """List runs that a planner has opened, newest first.

    With a filter a page may be short: go on while there is a `next_cursor`.
    """
    page = await here.index.page(tenant, limit, cursor, status)
    return RunPage(runs=page.runs, next_cursor=page.next_cursor)


@router.get("/v1/runs/{run_id}", response_model=RunStatus, tags=["runs"])
async def get_run(run_id: str, request: Request, here: Here, tenant: Tenant, artifacts: Form = "values") -> Response:
    """Tell where a run stands, and its result once it has ended: with JSON artifacts up to 1 MiB in it, or with all as references."""
    status = (await here.find(tenant, run_id)).status()
    if artifacts == "values" and status.payload is not None:
        status = status.model_copy(update={"payload": await inlined(here.artifacts, tenant, status.payload)})
    return await _json(request, status)


@router.get(
    "/v1/runs/{run_id}/events",
    responses={200: STREAMED, 204: {"description": "The cursor stands at the end: nothing more will come."}},
    response_model=None,
    tags=["runs"],
)
async def run_events(
    run_id: str,
    here: Here,
    tenant: Tenant,
    last_event_id: Annotated[str | None, Header(json_schema_extra=EVENT_ID)] = None,
    after: Annotated[str | None, Query(alias="last_event_id", json_schema_extra=EVENT_ID)] = None,
    artifacts: Form = "values",
) -> Response:
    """Stream a run: what happened so far, then live, until it ends.

    `Last-Event-ID` resumes; 204 when nothing more will come.
    """
    here.streams.check(tenant)
    found = await here.find(tenant, run_id)
    cursor = _cursor(last_event_id or after)
    for _ in range(_LOOKS):
        if cursor.log <= found.last_sequence and await here.runs.has_given(tenant, found, cursor.log, cursor.stream):
            break
        # Another gateway has shown more than this copy of the log holds so far; or the id is made up.
        await asyncio.sleep(_SETTLING_S)
        found = await here.find(tenant, run_id)
    else:
        raise BadCursor
    if found.ended and cursor.log == found.last_sequence:
        return Response(status_code=204, headers={RUN_HEADER: run_id})
    return here.follow(tenant, run_id, artifacts, cursor)


def _cursor(text: str | None) -> Cursor:
    try:
        return Cursor.parse(text) if text else Cursor()
    except ValueError as error:
        raise BadCursor from error


@router.post(
    "/v1/runs/{run_id}/cancel",
    status_code=202,
    responses={200: {"model": RunStatus, "description": "The run had ended before."}},
    openapi_extra=body_of(CancelInput, optional=True),
    tags=["runs"],
)
async def cancel_run(run_id: str, request: Request, response: Response, here: Here, tenant: Tenant) -> RunStatus:
    """End a run now. 202: it will end, though it may just have ended another way; 200: it had ended before."""
    body = await read_body(request, here.settings.max_body_bytes)
    asked = parse(CancelInput, body) if body else CancelInput()
    found = await here.find(tenant, run_id)
    if found.ended:
        response.status_code = 200
    else:
        await here.intake.cancel(tenant, run_id, asked.reason)
    return found.status()


@router.delete("/v1/runs/{run_id}", status_code=202, response_class=Response, tags=["runs"])
async def delete_run(run_id: str, here: Here, tenant: Tenant) -> None:
    """Delete a run with its events, artifacts and images.

    From now on it is not found; one that has not ended is cancelled first.
    """
    request = (await here.find(tenant, run_id)).request()
    await here.deletions.delete(tenant, run_id, request.requested_at if request else None)


@router.post("/v1/runs/{run_id}/top-up", status_code=202, openapi_extra=body_of(TopUpInput, keyed=True), tags=["runs"])
async def top_up_run(run_id: str, request: Request, here: Here, tenant: Tenant) -> RunStatus:
    """Let a run spend more, counted from now on.

    One that waits for it goes on. With an `Idempotency-Key` the same request counts once.
    """
    asked = parse(TopUpInput, await read_body(request, here.settings.max_body_bytes))
    key = idempotency_key(request)
    found = await here.find(tenant, run_id)
    if found.ended or found.first is None:
        raise NotRunning
    await here.intake.top_up(tenant, run_id, asked.limits, key)
    return found.status()


@router.post("/chat", response_model=ChatAnswer, openapi_extra=body_of(ChatInput, keyed=True), tags=["compatibility"])
async def chat(request: Request, here: Here, tenant: Tenant, artifacts: Form = "values") -> Response:
    """Ask a question and wait for the end of its run, however it ends. Who hangs up does not cancel the run."""
    with here.streams.place(tenant):
        run = await here.asking.accept(request, tenant, ChatInput)
        result = here.runs.result(tenant, run)
        payload = await while_connected(
            request, here.streams, result, "The gateway is stopping; the run goes on.", run_id=run
        )
    if artifacts == "values":
        payload = await inlined(here.artifacts, tenant, payload)
    return await _json(request, ChatAnswer(run_id=run, payload=payload))


@router.get("/v1/tools", tags=["tools"])
async def list_tools(here: Here) -> ToolList:
    """List the tools that are there right now, and those that announce themselves and cannot be used, with the reason."""
    tools = here.tools()
    return ToolList(tools=[tools[name] for name in sorted(tools)], refused=await refused_tools(here.bus))


async def _json(request: Request, answer: BaseModel) -> Response:
    """An answer that may be heavy: compressed for callers who take that."""
    body, headers = answer.model_dump_json().encode(), {"Vary": "Accept-Encoding"}
    if len(body) > _WORTH_BYTES and takes_gzip(request.headers):
        body, headers["Content-Encoding"] = await asyncio.to_thread(gzip.compress, body, 6), "gzip"
    return Response(body, headers=headers, media_type="application/json")
