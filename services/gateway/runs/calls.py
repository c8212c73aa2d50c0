"""`POST /v1/tools/{name}/call`: one call of a tool by a person or program, as a run that asks no model."""

import asyncio
from contextlib import suppress

from fastapi import Request, Response

from contracts.runs.requests import CallInput, RunStatus
from services.gateway.auth.caller import Caller
from services.gateway.edge.compression import json_response
from services.gateway.edge.routing import RUN_HEADER, Form, RequestCaller, body_of, needs, new_router
from services.gateway.parts import GatewayParts, Parts

from .accept import Accepted, accept_call

WAIT_S = 30.0
"""How long a request waits for the end of its call."""
router = new_router("tools")


@router.post(
    "/v1/tools/{name}/call",
    dependencies=[needs("run")],
    response_model=RunStatus,
    responses={202: {"model": RunStatus, "description": "The call goes on, or waits for a person (`pauses`)."}},
    openapi_extra=body_of(CallInput, keyed=True, traced=True),
)
async def call_tool(
    name: str, parts: GatewayParts, request: Request, caller: RequestCaller, artifacts: Form = "values"
) -> Response:
    """Call a tool, as a run without a model: checked, approved, recorded and paid for as a call of a model is.

    200 with the run once it has ended, however it ended: the tool's result is `payload.extra.result`. 202 when it waits
    for a person, or has not ended after 30 s. A tool that is hidden from models needs the right `apply` too.
    """
    with parts.streams.counted(caller.tenant):
        accepted = await accept_call(parts, request, caller, name)
        detail = "The gateway is stopping; the run goes on."
        status = await parts.streams.while_connected(
            request.receive, _waited(parts, caller, accepted), detail, caller, run_id=accepted.run
        )
    if artifacts == "values" and status.payload is not None:
        status = status.model_copy(update={"payload": await parts.inliner.payload(caller.tenant, status.payload)})
    answer = await json_response(status, request.headers, status=202 if status.ended_at is None else 200)
    answer.headers.update({"Location": f"/v1/runs/{accepted.run}", RUN_HEADER: accepted.run})
    return answer


async def _waited(parts: Parts, caller: Caller, accepted: Accepted) -> RunStatus:
    """Return the status of a run once it has ended or waits for a person, or after `WAIT_S`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            await parts.runs.wait_for_result(caller, accepted.run, accepted.follower)
    return (await parts.runs.current(caller, accepted.run)).status()
