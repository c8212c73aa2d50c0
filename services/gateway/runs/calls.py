"""`POST /v1/tools/{name}/call`: one call of a tool by a person or program, as a run that asks no model."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response

from contracts.runs.requests import CallInput, RunStatus
from contracts.wire.limits import MAX_ARGUMENT_BYTES
from services.gateway.auth.caller import Caller
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import (
    RUN_HEADER,
    Form,
    RequestCaller,
    address_of,
    body_of,
    json_response,
    needs,
    new_router,
)
from services.gateway.parts import GatewayParts, Parts

from .accept import accept_call

WAIT_S = 30.0
"""How long a request waits for the end of its call."""
GOES_ON: dict[int | str, dict[str, Any]] = {
    202: {"model": RunStatus, "description": "The call goes on, or waits for a person (`pauses`)."}
}
router = new_router("tools")


@router.post(
    "/v1/tools/{name}/call",
    dependencies=[needs("run")],
    response_model=RunStatus,
    responses=GOES_ON,
    openapi_extra=body_of(CallInput, keyed=True, traced=True),
)
async def call_tool(
    name: str,
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    artifacts: Form = "values",
    wait_s: Annotated[float | None, Query(ge=0, le=WAIT_S, description="for its end, at most; absent: 30")] = None,
) -> Response:
    """Call a tool, as a run without a model: checked, approved, recorded and paid for as a call of a model is.

    200 with the run once it has ended, however it ended: the tool's result is `payload.extra.result`. 202 when it waits
    for a person, or has not ended after `wait_s`. A tool that is hidden from models needs the right `apply` too.
    """
    given = await read_json(request, CallInput, min(parts.settings.max_body_bytes, MAX_ARGUMENT_BYTES))
    return await answer_of(
        parts, request, caller, await called(parts, request, caller, name, given, wait_s=wait_s), artifacts
    )


async def called(
    parts: Parts,
    request: Request,
    caller: Caller,
    name: str,
    given: CallInput,
    run: str | None = None,
    *,
    wait_s: float | None = None,
) -> RunStatus:
    """Return the status of a call once its run has ended or waits for a person, or after `wait_s`; None: `WAIT_S`.

    `run`: its id, where the caller has made it. Raises what `accept_call` raises.
    """
    with parts.streams.counted(caller.tenant):
        accepted = await accept_call(parts, request, caller, name, given, run)
        detail = "The gateway is stopping; the run goes on."
        ended = parts.runs.wait_for_result(caller, accepted.run, accepted.follower)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S if wait_s is None else wait_s):
                await parts.streams.while_connected(request.receive, ended, detail, caller, run_id=accepted.run)
        return (await parts.runs.current(caller, accepted.run)).status()


async def answer_of(
    parts: Parts, request: Request, caller: Caller, status: RunStatus, artifacts: Form = "values"
) -> Response:
    """Return the answer with the status of a call: 200 if it has ended, else 202."""
    parts.index.answered(caller.tenant, status.run_id, partial(parts.runs.current, caller, status.run_id))
    status = await parts.inliner.shown(caller.tenant, status, artifacts)
    answer = await json_response(status, request.headers, status=202 if status.ended_at is None else 200)
    answer.headers.update({"Location": address_of(request, f"/v1/runs/{status.run_id}"), RUN_HEADER: status.run_id})
    return answer
