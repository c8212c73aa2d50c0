"""Runs: start, list, read, cancel, delete, top up. `POST /chat` is one question, answered once its run has ended.

People who build read what lies behind a run's events: its records, and the prompts of its model calls.
"""

import asyncio
from typing import Annotated, Literal

from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from contracts.runs.inbox import Prompt, PromptRendered, PromptRequested
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import FinalPayload, Reason
from contracts.runs.requests import WAITS, LimitsInput, RunAccepted, RunInput, RunStatus, State, Waits
from contracts.wire import subjects
from contracts.wire.base import HttpInput
from services.gateway.edge import routing
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import NotFound, NotRunning, Problem, TryAgain
from services.gateway.parts import GatewayParts
from services.gateway.protocols.events.routes import EVENT_ID, run_at, run_events
from services.gateway.protocols.events.stream import EVENT_STREAM, stream_of_run
from services.messaging.connection import unix_seconds
from services.messaging.errors import Unavailable
from services.messaging.reads import sequence_of

from . import control
from .accept import accept
from .index import PAGE_CURSOR, Wanted

PROMPT_WAIT_S = 15.0

router = routing.new_router("runs")


class CancelInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/cancel`; it may be left out."""

    reason: str = Field(default="", max_length=1000, description="shown to listeners")


class TopUpInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/top-up`: what the run may spend from now on.

    What is left out stays as it is.
    """

    limits: LimitsInput = Field(json_schema_extra={"minProperties": 1})

    @field_validator("limits")
    @classmethod
    def _not_empty(cls, limits: LimitsInput) -> LimitsInput:
        if not limits.model_fields_set:
            raise ValueError("names no limit")
        return limits


class RunPage(BaseModel):
    """Some runs, newest first."""

    runs: list[RunStatus]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


@router.post(
    "/v1/runs",
    status_code=202,
    dependencies=[routing.needs("run")],
    response_model=RunAccepted,
    responses={200: EVENT_STREAM},
    openapi_extra=routing.body_of(RunInput, keyed=True, traced=True),
)
async def create_run(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    last_event_id: Annotated[str | None, Header(json_schema_extra=EVENT_ID)] = None,
    artifacts: routing.Form = "values",
) -> Response:
    """Start a run. With `Accept: text/event-stream` the answer is its event stream.

    With an `Idempotency-Key` header the same key and body always give the same run. With `Last-Event-ID` no run is
    started: the answer continues the run that this event belongs to, whose body it repeats.
    """
    is_streamed = routing.accepts_events(request)
    if is_streamed:
        parts.streams.check(caller.tenant)
    resumed = await run_at(parts, caller, last_event_id) if last_event_id else None
    accepted = await accept(parts, request, caller, RunInput, is_followed=is_streamed, resumed=resumed)
    run, url = accepted.run, routing.address_of(request, f"/v1/runs/{accepted.run}")
    if is_streamed and resumed:
        return await run_events(run, parts, caller, last_event_id, None, artifacts)
    if is_streamed:
        waits = accepted.waits_for_planner
        stream = stream_of_run(parts, caller, run, accepted.follower, artifacts, may_wait=waits)
        stream.headers["Location"] = url
        return stream
    urls = {"url": url, "events_url": f"{url}/events", "ticket_url": f"{url}/ticket"}
    answer = RunAccepted(run_id=run, session_id=accepted.session_id, **urls)
    return Response(answer.model_dump_json(), 202, {"Location": url, routing.RUN_HEADER: run}, "application/json")


@router.get("/v1/runs", response_model=RunPage)
async def list_runs(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=100, pattern=PAGE_CURSOR)] = None,
    status: Literal[State, Waits] | None = None,
    session_id: routing.Filter = None,
    user_id: routing.Filter = None,
    agent: routing.Filter = None,
    *,
    waits: bool = False,
) -> Response:
    """List runs that a planner has opened, newest first. `waits`: those that wait for a person, with their pauses.

    With a filter a page may be short: go on while there is a `next_cursor`.
    """
    wanted: dict[str, Wanted | None] = {"session_id": session_id, "user_id": user_id, "agent": agent}
    wanted["waits" if waits or status in WAITS else "status"] = WAITS if waits else status
    runs, next_cursor = await parts.index.page(RunStatus, caller, limit, cursor, **wanted)
    if waits:
        found = await asyncio.gather(*(parts.runs.find(caller.tenant, run.run_id) for run in runs))
        runs = [run for each in found if each is not None and ((run := each.status()).pauses or run.paused)]
    return await routing.json_response(RunPage(runs=runs, next_cursor=next_cursor), request.headers)


@router.get("/v1/runs/{run_id}", response_model=RunStatus)
async def get_run(
    run_id: str, parts: GatewayParts, request: Request, caller: RequestCaller, artifacts: routing.Form = "values"
) -> Response:
    """Return the status of a run, and its result once it has ended.

    The result contains JSON artifacts up to 1 MiB as values, or all artifacts as references.
    """
    status = (await parts.runs.get(caller, run_id)).status()
    return await routing.json_response(await parts.inliner.shown(caller.tenant, status, artifacts), request.headers)


@router.post(
    "/v1/runs/{run_id}/cancel",
    status_code=202,
    dependencies=[routing.needs("run")],
    responses={200: {"model": RunStatus, "description": "The run had ended before."}},
    openapi_extra=routing.body_of(CancelInput, optional=True),
)
async def cancel_run(
    run_id: str, parts: GatewayParts, request: Request, response: Response, caller: RequestCaller
) -> RunStatus:
    """End a run now. 202: it will end, though it may just have ended another way; 200: it had ended before."""
    given = await read_json(request, CancelInput, parts.settings.max_body_bytes, optional=True)
    found = await parts.runs.get_to_change(caller, run_id)
    if found.has_ended:
        response.status_code = 200
    else:
        await control.cancel(parts, caller.tenant, run_id, given.reason)
    return found.status()


@router.delete("/v1/runs/{run_id}", status_code=202, dependencies=[routing.needs("run")], response_class=Response)
async def delete_run(run_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete a run with its events, artifacts and images.

    From now on it is not found; one that has not ended is cancelled first.
    """
    request = (await parts.runs.get_to_change(caller, run_id)).request()
    known = (request.requested_at, request.session_id) if request else (None, None)
    await parts.deletions.delete(caller.tenant, run_id, *known)


@router.post(
    "/v1/runs/{run_id}/top-up",
    status_code=202,
    dependencies=[routing.needs("run")],
    openapi_extra=routing.body_of(TopUpInput, keyed=True),
)
async def top_up_run(run_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> RunStatus:
    """Let a run spend more, counted from now on.

    One that waits for it goes on. With an `Idempotency-Key` the same request counts once.
    """
    given = await read_json(request, TopUpInput, parts.settings.max_body_bytes)
    key = routing.idempotency_key(request)
    found = await parts.runs.get_to_change(caller, run_id)
    if found.has_ended or found.first is None:
        raise NotRunning
    await control.top_up(parts, caller.tenant, run_id, given.limits, key)
    return found.status()


inside_router = routing.new_router("runs")


class RecordHead(BaseModel):
    """A record of a run without its events, which the event stream has."""

    sequence: int = Field(description="in the stream RUNS; a part of the id of its last event")
    at: int = Field(description="Unix ms; when NATS stored it")
    subject: str
    headers: dict[str, str]
    bytes: int


class RecordHeads(BaseModel):
    """Some records of a run, oldest first."""

    records: list[RecordHead]


@inside_router.get("/v1/runs/{run_id}/records")
async def list_records(
    run_id: str,
    parts: GatewayParts,
    caller: RequestCaller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    after: Annotated[int, Query(ge=0, lt=1 << 53, description="the sequence of the last record that is known")] = 0,
) -> RecordHeads:
    """List where and how the events of a run are stored. Those of its stream, such as tokens, expire after an hour."""
    await parts.runs.get(caller, run_id)
    reader, found = await parts.bus.reader(subjects.RUNS), []
    for subject in (subjects.log(caller.tenant, run_id), subjects.stream(caller.tenant, run_id)):
        found += (await reader.page(subject, after + 1, limit))[0]
    heads = [
        RecordHead(
            sequence=sequence_of(message),
            at=int(unix_seconds(headers["Nats-Time-Stamp"]) * 1000),
            subject=headers["Nats-Subject"],
            headers={name: value for name, value in headers.items() if name[:5] != "Nats-"},
            bytes=len(message.data),
        )
        for message in found
        if (headers := message.headers)
    ]
    return RecordHeads(records=sorted(heads, key=lambda head: head.sequence)[:limit])


@inside_router.get("/v1/runs/{run_id}/prompt", dependencies=[routing.needs("operate")], response_model=Prompt)
async def get_prompt(
    run_id: str,
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    turn: int = 1,
    attempt: int = 1,
    part: int = 0,
) -> Response:
    """Return the prompt of a model call, as a planner renders it now from the log of the run.

    `turn`, `attempt` and `part` are those of its event `asked`.
    """
    found = await parts.runs.get(caller, run_id)
    wanted = PromptRequested(tenant=caller.tenant, run_id=found.run_id, turn=turn, attempt=attempt, part=part)
    try:
        answer = await parts.bus.request(subjects.prompt(), wanted.model_dump_json().encode(), PROMPT_WAIT_S)
    except Unavailable as error:
        raise TryAgain("No planner answers.") from error
    rendered = PromptRendered.model_validate_json(answer.data)
    if rendered.prompt is not None:
        return await routing.json_response(rendered.prompt, request.headers)
    if rendered.problem == "too_large":
        raise Problem.other(502, "result_too_large", "The prompt is larger than a message of this NATS server.")
    raise NotFound("The log of this run has no such model call; its events `asked` name them.")


chat_router = routing.new_router("compatibility")


class ChatInput(RunInput):
    """The body of `POST /chat`, a compatibility surface: that of a run, and unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ChatAnswer(BaseModel):
    """The answer of `POST /chat`, however the run ended."""

    run_id: str
    session_id: str = Field(description="a later question with it continues the conversation")
    status: State = Field(description="`done`, `error` or `cancelled`")
    reason: Reason | None
    code: str | None = Field(description="fault code of a run that ended in error")
    payload: FinalPayload


class ChatWaiting(BaseModel):
    """The answer of `POST /chat` (202) when its run waits for a person. It goes on once somebody has decided."""

    run_id: str
    session_id: str
    status: Literal["waiting"] = "waiting"
    pauses: list[OpenPause] = Field(description="what it waits for: POST /v1/runs/{run_id}/resume decides")
    paused: str | None = Field(default=None, description="the budget whose top-up it waits for")


@chat_router.post(
    "/chat",
    dependencies=[routing.needs("run")],
    response_model=ChatAnswer,
    responses={202: {"model": ChatWaiting, "description": "The run waits for a person."}},
    openapi_extra=routing.body_of(ChatInput, keyed=True, traced=True),
)
async def chat(
    parts: GatewayParts, request: Request, caller: RequestCaller, artifacts: routing.Form = "values"
) -> Response:
    """Start a run and wait for its end, however it ends. A client that disconnects does not cancel it.

    202 when the run does nothing but wait for a person.
    """
    with parts.streams.counted(caller.tenant):
        accepted = await accept(parts, request, caller, ChatInput, is_followed=True)
        result = parts.runs.wait_for_result(caller, accepted.run, accepted.follower)
        detail = "The gateway is stopping; the run goes on."
        found = await parts.streams.while_connected(request.receive, result, detail, caller, run_id=accepted.run)
    shown = parts.inliner.shown(caller.tenant, found, artifacts)
    found, _ = await asyncio.gather(shown, parts.index.follows(caller.tenant, accepted.requested_at, found))
    parts.index.answered(caller, accepted.run)
    ids = {"run_id": accepted.run, "session_id": accepted.session_id}
    if found.payload is None:
        waiting = ChatWaiting(**ids, pauses=found.pauses, paused=found.paused)
        return await routing.json_response(waiting, request.headers, status=202)
    ended = found.model_dump(include={"status", "reason", "code"})
    return await routing.json_response(ChatAnswer(**ids, **ended, payload=found.payload), request.headers)
