"""Check a plan against the tools that are present. Nothing of it runs."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from contracts.runs.plans import PlanReport
from contracts.tools.messages import ToolSpec
from contracts.wire.base import HttpInput
from runwire.plans import PlanBounds, report
from services.gateway.auth.caller import Caller
from services.gateway.edge.compression import json_response
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller, body_of, needs, new_router
from services.gateway.errors import InvalidInput, NotAllowed


class PlanCheckInput(HttpInput):
    """The body of `POST /v1/plans/check`."""

    plan: Any = Field(description="as a model gives it: `{type, …}`, or `{calls}`")
    tools: list[str] | None = Field(default=None, description="names of the tools that count; null: all")
    outputs: list[Any] | None = Field(
        default=None, description="results of the plan's calls, in order, with which its templates are resolved"
    )


class PlanRoutes:
    """The route of plans. `live`: returns the present tools by name."""

    def __init__(self, live: Callable[[], Mapping[str, ToolSpec]], bounds: PlanBounds, max_body_bytes: int) -> None:
        self._live = live
        self._bounds = bounds
        self._max_body_bytes = max_body_bytes

    def router(self) -> APIRouter:
        """Return the route."""
        router = new_router("plans")
        router.post(
            "/v1/plans/check",
            dependencies=[needs("run")],
            response_model=PlanReport,
            openapi_extra=body_of(PlanCheckInput),
        )(self.check_plan)
        return router

    async def check_plan(self, request: Request, caller: RequestCaller) -> Response:
        """Say what is wrong with a plan, as a run would before its first call."""
        given = await read_json(request, PlanCheckInput, self._max_body_bytes)
        tools = _chosen(self._live(), caller, given.tools)
        body = await asyncio.to_thread(_report, given, tools, self._bounds)  # Hostile plans take 0.3 s.
        return await json_response(body, request.headers)


def _report(given: PlanCheckInput, tools: Mapping[str, ToolSpec], bounds: PlanBounds) -> bytes:
    return report(given.plan, tools, bounds, given.outputs).model_dump_json().encode()


def _chosen(live: Mapping[str, ToolSpec], caller: Caller, names: list[str] | None) -> dict[str, ToolSpec]:
    """Return the tools that a run of the caller could use. Raises NotAllowed, and InvalidInput for an unknown name."""
    allowed = live.keys() if caller.tools is None else live.keys() & set(caller.tools)
    for number, name in enumerate(names or ()):
        if caller.tools is not None and name not in caller.tools:
            raise NotAllowed(f"tools.{number}", f"this key may name: {', '.join(caller.tools) or 'none'}")
        if name not in live:
            raise InvalidInput(f"tools.{number}", "there is no such tool")
    return {name: live[name] for name in sorted(allowed if names is None else names)}
