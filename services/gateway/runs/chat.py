"""`POST /chat`: one question, answered once its run has ended. For programs of an earlier interface."""

from typing import Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from contracts.runs.pauses import OpenPause
from contracts.runs.payload import FinalPayload, Reason
from contracts.runs.requests import RunInput, State
from services.gateway.edge.compression import json_response
from services.gateway.edge.routing import Form, RequestCaller, body_of, needs, new_router
from services.gateway.parts import GatewayParts

from .accept import accept

router = new_router("compatibility")


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


@router.post(
    "/chat",
    dependencies=[needs("run")],
    response_model=ChatAnswer,
    responses={202: {"model": ChatWaiting, "description": "The run waits for a person."}},
    openapi_extra=body_of(ChatInput, keyed=True, traced=True),
)
async def chat(parts: GatewayParts, request: Request, caller: RequestCaller, artifacts: Form = "values") -> Response:
    """Start a run and wait for its end, however it ends. A client that disconnects does not cancel it.

    202 when the run does nothing but wait for a person.
    """
    with parts.streams.counted(caller.tenant):
        accepted = await accept(parts, request, caller, ChatInput, is_followed=True)
        result = parts.runs.wait_for_result(caller, accepted.run, accepted.follower)
        detail = "The gateway is stopping; the run goes on."
        found = await parts.streams.while_connected(request.receive, result, detail, caller, run_id=accepted.run)
    ids = {"run_id": accepted.run, "session_id": accepted.session_id}
    if found.payload is None:
        waiting = ChatWaiting(**ids, pauses=found.pauses, paused=found.paused)
        return await json_response(waiting, request.headers, status=202)
    payload = await parts.inliner.payload(caller.tenant, found.payload) if artifacts == "values" else found.payload
    ended = found.model_dump(include={"status", "reason", "code"})
    return await json_response(ChatAnswer(**ids, **ended, payload=payload), request.headers)
