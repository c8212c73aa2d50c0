"""What lies behind the events of a run, for people who build: its records, and the prompts of its model calls."""

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from contracts.runs.prompts import Prompt, PromptRendered, PromptRequested
from contracts.wire import subjects
from services.gateway.edge.compression import json_response
from services.gateway.edge.routing import RequestCaller, needs, new_router
from services.gateway.errors import NotFound, Problem, TryAgain
from services.gateway.parts import GatewayParts
from services.messaging.connection import unix_seconds
from services.messaging.errors import Unavailable
from services.messaging.reads import sequence_of

PROMPT_WAIT_S = 15.0

router = new_router("runs")


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


@router.get("/v1/runs/{run_id}/records")
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


@router.get("/v1/runs/{run_id}/prompt", dependencies=[needs("operate")], response_model=Prompt)
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
        return await json_response(rendered.prompt, request.headers)
    if rendered.problem == "too_large":
        raise Problem.other(502, "result_too_large", "The prompt is larger than a message of this NATS server.")
    raise NotFound("The log of this run has no such model call; its events `asked` name them.")
