"""What a run may be made of: agents, tools, pages, a plan that is checked, a key's budget; and calls of one tool.

A person or program makes such a call, as a run that asks no model.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from contracts.runs.decisions import PlanReport
from contracts.runs.pages import ClientAction, Page
from contracts.runs.requests import AgentModels, CallInput, KeyBudget, KeySpent, RunStatus
from contracts.tools.messages import LiveTool, RefusedTool, ToolSpec
from contracts.wire.base import MAX_ARGUMENT_BYTES, HttpInput
from runwire.plans import report
from services.gateway.auth.caller import Caller
from services.gateway.edge import routing
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import InvalidInput
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs.accept import accept_call
from services.runtime.check_worker import CheckTooCostly, run_check
from services.shared.json_schema.checks import certain_faults
from services.shared.redaction.json_values import wire_size
from services.shared.tools.catalogue import instances, refused_tools

WAIT_S = 30.0
"""How long a request waits for the end of its call."""
GOES_ON: dict[int | str, dict[str, Any]] = {
    202: {"model": RunStatus, "description": "The call goes on, or waits for a person (`pauses`)."}
}
_MAX_SMALL_PLAN_BYTES = 16 << 10
"""A smaller plan is checked in a thread, a larger one in a process of its own."""
router = routing.new_router()


@router.post(
    "/v1/tools/{name}/call",
    tags=["tools"],
    dependencies=[routing.needs("run")],
    response_model=RunStatus,
    responses=GOES_ON,
    openapi_extra=routing.body_of(CallInput, keyed=True, traced=True),
)
async def call_tool(
    name: str,
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    artifacts: routing.Form = "values",
    wait_s: Annotated[float | None, Query(ge=0, le=WAIT_S, description="for its end, at most; absent: 30")] = None,
) -> Response:
    """Call a tool, as a run without a model: checked, approved, recorded and paid for as a call of a model is.

    200 with the run once it has ended, however it ended: the tool's result is `payload.extra.result`. 202 when it waits
    for a person, or has not ended after `wait_s`. A tool that is hidden from models needs the right `apply` too.
    """
    given = await read_json(request, CallInput, min(parts.settings.max_body_bytes, MAX_ARGUMENT_BYTES))
    return await answer_to_call(parts, request, caller, name, given, wait_s=wait_s, artifacts=artifacts)


async def answer_to_call(
    parts: Parts,
    request: Request,
    caller: Caller,
    name: str,
    given: CallInput,
    run: str | None = None,
    *,
    wait_s: float | None = None,
    artifacts: routing.Form = "values",
) -> Response:
    """Return the answer with the status of a call: 200 once its run has ended; 202 if it waits, or after `wait_s`.

    `run`: its id, where the caller has made it. `wait_s`: None: `WAIT_S`. Raises what `accept_call` raises.
    """
    with parts.streams.counted(caller.tenant):
        accepted = await accept_call(parts, request, caller, name, given, run)
        detail = "The gateway is stopping; the run goes on."
        ended = parts.runs.wait_for_result(caller, accepted.run, accepted.follower)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S if wait_s is None else wait_s):
                await parts.streams.while_connected(request.receive, ended, detail, caller, run_id=accepted.run)
        status = (await parts.runs.current(caller, accepted.run)).status()
    parts.index.answered(caller, accepted.run)
    status = await parts.inliner.shown(caller.tenant, status, artifacts)
    answer = await routing.json_response(status, request.headers, status=202 if status.ended_at is None else 200)
    answer.headers["Location"] = routing.address_of(request, f"/v1/runs/{accepted.run}")
    answer.headers[routing.RUN_HEADER] = accepted.run
    return answer


class AgentList(BaseModel):
    """The agents of the planners that run now."""

    agents: list[AgentModels]


class ToolList(BaseModel):
    """The tools that are present now."""

    tools: list[LiveTool]
    refused: list[RefusedTool] = Field(
        default_factory=list, description="those that announce what cannot be used or is not accepted, with the reason"
    )


class TabView(BaseModel):
    """A tab of a page, with the names of its subtabs."""

    name: str
    subtabs: list[str]


class ListedPage(BaseModel):
    """A page that requests may name, with what counts on it as a whole; a tab may add to that."""

    name: str
    description: str
    tabs: list[TabView]
    payloads: list[str]
    client_actions: list[ClientAction]


class PageList(BaseModel):
    """The pages of this deployment, and the role of the key that the request shows."""

    pages: list[ListedPage]
    role: str


class BudgetToday(BaseModel):
    """What the runs that the key starts today may spend together, and have spent. Without a budget all is null."""

    limits: KeyBudget | None = None
    spent: KeySpent | None = None
    ends_at: int | None = Field(default=None, description="Unix time in ms: the end of the day, by UTC")


class PlanCheckInput(HttpInput):
    """The body of `POST /v1/plans/check`."""

    plan: Any = Field(description="as a model gives it: `{type, …}`, or `{calls}`")
    tools: list[Annotated[str, Field(min_length=1)]] | None = Field(
        default=None, description="names of the tools that count; null: all"
    )
    outputs: list[Any] | None = Field(
        default=None, description="results of the plan's calls, in order, with which its templates are resolved"
    )


@router.post(
    "/v1/plans/check",
    tags=["plans"],
    dependencies=[routing.needs("run")],
    response_model=PlanReport,
    openapi_extra=routing.body_of(PlanCheckInput),
)
async def check_plan(parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Say what is wrong with a plan, as a run would before its first call."""
    given = await read_json(request, PlanCheckInput, parts.settings.max_body_bytes)
    tools = _chosen(parts.tools(), caller, given.tools)
    check = partial(report, given.plan, tools, parts.settings.bounds(), given.outputs, certain_faults)
    is_small = wire_size([given.plan, given.outputs]) <= _MAX_SMALL_PLAN_BYTES
    try:
        async with parts.checks.of(caller.tenant):
            found = await (asyncio.to_thread(check) if is_small else asyncio.to_thread(run_check, check))
    except CheckTooCostly as error:
        raise InvalidInput("plan", f"its check was ended: {error}; make the plan smaller") from error
    return await routing.json_response(found, request.headers)


@router.get("/v1/tools", tags=["tools"])
async def list_tools(parts: GatewayParts) -> ToolList:
    """List the present tools, and the refused ones with the reason."""
    refused, counts = await asyncio.gather(refused_tools(parts.bus), instances(parts.bus))
    live = sorted(parts.tools().items())
    tools = [LiveTool(**tool.model_dump(), instances=counts.get(name, 0)) for name, tool in live]
    return ToolList(tools=tools, refused=refused)


@router.get("/v1/agents", tags=["agents"])
async def list_agents(parts: GatewayParts) -> AgentList:
    """List the agents, each with the models that answer its runs. Without a planner there are none."""
    return AgentList(agents=await parts.models.of_agents())


@router.get("/v1/pages", tags=["pages"])
async def list_pages(parts: GatewayParts, caller: RequestCaller) -> PageList:
    """List the pages that requests may name."""
    listed = [
        ListedPage(
            name=name,
            description=page.description,
            tabs=[TabView(name=tab, subtabs=list(within.subtabs)) for tab, within in page.tabs.items()],
            payloads=parts.pages.payloads(Page(name=name)),
            client_actions=parts.pages.actions(Page(name=name)),
        )
        for name, page in sorted(parts.pages.pages.items())
    ]
    return PageList(pages=listed, role=caller.role)


@router.get("/v1/budget", tags=["budget"])
async def get_budget(parts: GatewayParts, caller: RequestCaller) -> BudgetToday:
    """Return the budget of the key that the request shows, and what its runs have spent today."""
    today = await parts.budgets.today(caller)
    if today is None:
        return BudgetToday()
    return BudgetToday(limits=today.budget, spent=today.spent.entry(), ends_at=today.ends_at)


def _chosen(live: Mapping[str, ToolSpec], caller: Caller, names: list[str] | None) -> dict[str, ToolSpec]:
    """Return the tools that a run of the caller could use. Raises NotAllowed, and InvalidInput for an unknown name."""
    offered = {name for name, spec in live.items() if not spec.hidden}
    allowed = offered if caller.tools is None else offered & set(caller.tools)
    for number, name in enumerate(names or ()):
        caller.check_tool(name, f"tools.{number}")
        if name not in offered:
            raise InvalidInput(f"tools.{number}", "there is no such tool")
    return {name: live[name] for name in sorted(allowed if names is None else names)}
