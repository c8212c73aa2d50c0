"""Schedules and webhooks: make, list, read, delete; and the deliveries of webhooks."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from contracts.runs.requests import RunAccepted
from contracts.sessions.schedules import ScheduleCreated, ScheduleInput, ScheduleView
from services.gateway.edge.routing import RequestCaller, body_of, needs, new_router
from services.gateway.protocols.events.stream import RUN_HEADER
from services.gateway.schedules.schedules import Schedules
from services.gateway.schedules.webhooks import SIGNING_HEADERS, Webhooks

DELIVERY = {
    "security": [],
    "requestBody": {"description": "Any JSON.", "required": True, "content": {"application/json": {"schema": {}}}},
    "parameters": [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in SIGNING_HEADERS
    ],
}


class ScheduleList(BaseModel):
    """The schedules and webhooks of the caller, newest first."""

    schedules: list[ScheduleView]


class ScheduleRoutes:
    """Routes of schedules and webhooks."""

    def __init__(self, schedules: Schedules, webhooks: Webhooks) -> None:
        self._schedules = schedules
        self._webhooks = webhooks

    def router(self) -> APIRouter:
        """Return the routes."""
        router = new_router("schedules")
        path = "/v1/schedules/{schedule_id}"
        router.post(
            "/v1/schedules",
            status_code=201,
            dependencies=[needs("run")],
            response_model=ScheduleCreated,
            openapi_extra=body_of(ScheduleInput, keyed=True),
        )(self.create_schedule)
        router.get("/v1/schedules")(self.list_schedules)
        router.get(path)(self.get_schedule)
        router.delete(path, status_code=204, dependencies=[needs("run")], response_class=Response)(self.delete_schedule)
        router.post("/v1/hooks/{schedule_id}", status_code=202, response_model=RunAccepted, openapi_extra=DELIVERY)(
            self.receive_delivery
        )
        return router

    async def create_schedule(self, request: Request, caller: RequestCaller) -> Response:
        """Make a schedule, which starts runs at times, or a webhook, which starts one for each signed delivery.

        With an `Idempotency-Key` header the same key and body always give the same schedule.
        """
        created = await self._schedules.create(request, caller)
        headers = {"Location": f"/v1/schedules/{created.schedule_id}", "Cache-Control": "no-store"}
        return Response(created.model_dump_json(), 201, headers, "application/json")

    async def list_schedules(self, caller: RequestCaller) -> ScheduleList:
        """List schedules and webhooks, newest first."""
        return ScheduleList(schedules=await self._schedules.list(caller))

    async def get_schedule(self, schedule_id: str, caller: RequestCaller) -> ScheduleView:
        """Return a schedule or webhook, with its next three times."""
        return await self._schedules.get(caller, schedule_id)

    async def delete_schedule(self, schedule_id: str, caller: RequestCaller) -> None:
        """Delete a schedule or webhook. It starts no further run; those that it started go on."""
        await self._schedules.delete(caller, schedule_id)

    async def receive_delivery(self, schedule_id: str, request: Request) -> Response:
        """Start a run by a webhook. In place of an API key the delivery is signed (Standard Webhooks).

        The same `webhook-id` always gives the same run. The body is data for the model: `llm_context.webhook`.
        """
        run, session_id = await self._webhooks.deliver(request, schedule_id)
        url = f"/v1/runs/{run}"
        answer = RunAccepted(run_id=run, session_id=session_id, url=url, events_url=f"{url}/events")
        headers = {"Location": url, RUN_HEADER: run, "Cache-Control": "no-store"}
        return Response(answer.model_dump_json(), 202, headers, "application/json")
