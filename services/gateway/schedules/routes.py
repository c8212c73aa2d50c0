"""Schedules and webhooks: make, list, read, delete; and the deliveries of webhooks."""

from typing import TypeVar

from fastapi import Request, Response
from pydantic import BaseModel

from contracts.runs.requests import RunAccepted
from contracts.sessions.schedules import ScheduleCreated, ScheduleInput, ScheduleView
from services.gateway.edge.addresses import address_of
from services.gateway.edge.routing import RUN_HEADER, RequestCaller, body_of, json_answer, needs, new_router
from services.gateway.parts import GatewayParts

from . import schedules, webhooks

DELIVERY = {
    "security": [],
    "requestBody": {"description": "Any JSON.", "required": True, "content": {"application/json": {"schema": {}}}},
    "parameters": [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
        for name in webhooks.SIGNING_HEADERS
    ],
}

View = TypeVar("View", bound=ScheduleView)
router = new_router("schedules")


class ScheduleList(BaseModel):
    """The schedules and webhooks of the caller, newest first."""

    schedules: list[ScheduleView]


@router.post(
    "/v1/schedules",
    status_code=201,
    dependencies=[needs("run")],
    response_model=ScheduleCreated,
    openapi_extra=body_of(ScheduleInput, keyed=True),
)
async def create_schedule(parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Make a schedule, which starts runs at times, or a webhook, which starts one for each signed delivery.

    With an `Idempotency-Key` header the same key and body always give the same schedule.
    """
    created = await schedules.create(parts, request, caller)
    location = address_of(request, f"/v1/schedules/{created.schedule_id}")
    return json_answer(_addressed(request, created), 201, {"Location": location})


@router.get("/v1/schedules")
async def list_schedules(parts: GatewayParts, request: Request, caller: RequestCaller) -> ScheduleList:
    """List schedules and webhooks, newest first."""
    found = await schedules.list_visible(parts, caller)
    return ScheduleList(schedules=[_addressed(request, each) for each in found])


@router.get("/v1/schedules/{schedule_id}")
async def get_schedule(schedule_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> ScheduleView:
    """Return a schedule or webhook, with its next three times."""
    return _addressed(request, schedules.view_of((await schedules.find(parts, caller, schedule_id))[1]))


def _addressed(request: Request, view: View) -> View:
    """Return a schedule with the address of its webhook as the client reaches it."""
    url = view.webhook_url
    return view if url is None else view.model_copy(update={"webhook_url": address_of(request, url)})


@router.delete("/v1/schedules/{schedule_id}", status_code=204, dependencies=[needs("run")], response_class=Response)
async def delete_schedule(schedule_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete a schedule or webhook. It starts no further run; those that it started go on."""
    await schedules.delete(parts, caller, schedule_id)


@router.post("/v1/hooks/{schedule_id}", status_code=202, response_model=RunAccepted, openapi_extra=DELIVERY)
async def receive_delivery(schedule_id: str, parts: GatewayParts, request: Request) -> Response:
    """Start a run by a webhook. In place of an API key the delivery is signed (Standard Webhooks).

    The same `webhook-id` always gives the same run. The body is data for the model: `llm_context.webhook`.
    """
    run, session_id = await webhooks.deliver(parts, request, schedule_id)
    url = address_of(request, f"/v1/runs/{run}")
    urls = {"url": url, "events_url": f"{url}/events", "ticket_url": f"{url}/ticket"}
    answer = RunAccepted(run_id=run, session_id=session_id, **urls)
    return json_answer(answer, 202, {"Location": url, RUN_HEADER: run})
