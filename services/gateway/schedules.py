"""Schedules and webhooks: make, list, read, delete; deliveries to webhooks, which request a run as a caller does.

The runs of schedules are requested by planners. The entry of a schedule is written first, then the message that makes
a planner set its timer. If that message is not stored, the caller repeats its request, and a planner finds the schedule
within a minute.

The signatures of deliveries are those of Standard Webhooks: `webhook-signature` holds `v1,<base64>` of the HMAC-SHA256
of `<webhook-id>.<webhook-timestamp>.<body>`, with the webhook's secret.

Rule 1: an unknown webhook, a wrong signature and an old timestamp get the same answer, after the same work.
Rule 2: nothing but the secret is read before the signature has been checked.
Rule 3: the id of the run follows from `webhook-id`, so a delivery that is repeated starts no second run.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import structlog
from fastapi import Request, Response
from pydantic import BaseModel, RootModel

from contracts.runs.inbox import ScheduleSet
from contracts.runs.requests import KeyBudget, RunAccepted, RunInput, RunRequested
from contracts.sessions.schedules import (
    MAX_SCHEDULE_BYTES,
    MAX_SCHEDULES,
    MAX_SCHEDULES_PER_KEY,
    MAX_WEBHOOK_BYTES,
    WEBHOOK_KEY_PREFIX,
    Schedule,
    ScheduleCreated,
    ScheduleInput,
    ScheduleView,
    Webhook,
)
from contracts.wire import keys, subjects
from contracts.wire.names import InvalidName, new_id, own_session_id, started_run_id, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge import routing
from services.gateway.edge.request_body import BodyLimit, parse, read_body, read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import IdempotencyConflict, InvalidInput, NotAllowed, NotFound, TooManySchedules, TryAgain
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs.accept import accept_made, check_page, digest_of, encoded, run_request
from services.messaging.kv import Bucket
from services.shared import schedules as times

logger = structlog.get_logger(__name__)

T = TypeVar("T")
_READ_AT_ONCE = 100
_QUESTION_CHARACTERS = 200
_REQUEST = "run"
"""The field of a schedule that holds the request of its runs."""
_SHOWN = frozenset(RunInput.model_fields) - {"images", "tool_context"}
MAX_AGE_S = 300
"""Of a delivery, by its timestamp."""
SIGNING_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_ENDS_WITH_NUMBER = re.compile(r"\.[0-9]+\Z", re.ASCII)
"""Such an id could be the id, and the end of it the timestamp, of another signed delivery: a dot joins them."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
_TRIGGERS = ("cron", "at", "webhook")
DELIVERY = {
    "security": [],
    "requestBody": {"description": "Any JSON.", "required": True, "content": {"application/json": {"schema": {}}}},
    "parameters": [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in SIGNING_HEADERS
    ],
}
router = routing.new_router("schedules")


class ScheduleList(BaseModel):
    """The schedules and webhooks of the caller, newest first."""

    schedules: list[ScheduleView]


@router.post(
    "/v1/schedules",
    status_code=201,
    dependencies=[routing.needs("run")],
    response_model=ScheduleCreated,
    openapi_extra=routing.body_of(ScheduleInput, keyed=True),
)
async def create_schedule(parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Make a schedule, which starts runs at times, or a webhook, which starts one for each signed delivery.

    With an `Idempotency-Key` header the same key and body always give the same schedule.
    """
    bucket, max_bytes = parts.entries, min(parts.settings.max_body_bytes, MAX_SCHEDULE_BYTES)
    given = await read_json(request, ScheduleInput, max_bytes)
    key = routing.idempotency_key(request)
    schedule_id = caller.run_id_for_key(f"schedule\n{caller.key_id}\n{key}") if key else new_id()
    digest = digest_of(given.model_dump(mode="json", exclude_defaults=True))
    entry = keys.schedule_entry(caller.tenant, schedule_id)
    schedule = (await bucket.get_from_leader(entry)).parsed(Schedule) if key else None
    if schedule is None:
        requested = await _requested(parts, caller, schedule_id, given.run)
        schedule = _schedule(caller, given, requested, digest)
        # For an hour, deleted entries are among the keys of the bucket, so the keys alone are no count.
        made_by = [each.request.key_id async for each in _of_tenant(parts, caller.tenant, MAX_SCHEDULES_PER_KEY)]
        if len(made_by) >= MAX_SCHEDULES:
            raise TooManySchedules(MAX_SCHEDULES, "tenant")
        if caller.key_id and made_by.count(caller.key_id) >= MAX_SCHEDULES_PER_KEY:
            raise TooManySchedules(MAX_SCHEDULES_PER_KEY, "API key")
    secret = None
    if given.webhook and schedule.body_sha256 == digest:
        made = Webhook(tenant=caller.tenant, secret=new_secret())
        secret = (await bucket.get_or_make(keys.webhook_entry(schedule_id), made)).secret
    schedule = await bucket.get_or_make(entry, schedule)
    if schedule.body_sha256 != digest:
        raise IdempotencyConflict
    await _notify(parts, schedule.tenant, schedule_id)
    logger.info("schedule_made", schedule_id=schedule_id, tenant=caller.tenant, key_id=caller.key_id)
    created = ScheduleCreated(**view_of(request, schedule).model_dump(), secret=secret)
    return routing.json_answer(created, 201, {"Location": routing.address_of(request, f"/v1/schedules/{schedule_id}")})


@router.get("/v1/schedules")
async def list_schedules(parts: GatewayParts, request: Request, caller: RequestCaller) -> ScheduleList:
    """List schedules and webhooks, newest first."""
    visible = [each async for each in _of_tenant(parts, caller.tenant) if caller.may_see(each.request.user_id)]
    newest_first = sorted(visible, key=lambda each: each.created_at, reverse=True)
    return ScheduleList(schedules=[view_of(request, each, is_listed=True) for each in newest_first])


@router.get("/v1/schedules/{schedule_id}")
async def get_schedule(schedule_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> ScheduleView:
    """Return a schedule or webhook, with its next three times."""
    return view_of(request, (await _find(parts, caller, schedule_id))[1])


@router.delete(
    "/v1/schedules/{schedule_id}", status_code=204, dependencies=[routing.needs("run")], response_class=Response
)
async def delete_schedule(schedule_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete a schedule or webhook. It starts no further run; those that it started go on."""
    key, schedule = await _find(parts, caller, schedule_id)
    caller.check_change(schedule.request)
    if _is_webhook(schedule):
        await parts.entries.delete(keys.webhook_entry(schedule_id))
    await parts.entries.delete(key)
    await _notify(parts, caller.tenant, schedule_id)
    logger.info("schedule_deleted", schedule_id=schedule_id, tenant=caller.tenant, key_id=caller.key_id)


@router.post("/v1/hooks/{schedule_id}", status_code=202, response_model=RunAccepted, openapi_extra=DELIVERY)
async def receive_delivery(schedule_id: str, parts: GatewayParts, request: Request) -> Response:
    """Start a run by a webhook. In place of an API key the delivery is signed (Standard Webhooks).

    The same `webhook-id` always gives the same run. The body is data for the model: `llm_context.webhook`.
    """
    run, session_id = await deliver(parts, request, schedule_id)
    url = routing.address_of(request, f"/v1/runs/{run}")
    urls = {"url": url, "events_url": f"{url}/events", "ticket_url": f"{url}/ticket"}
    answer = RunAccepted(run_id=run, session_id=session_id, **urls)
    return routing.json_answer(answer, 202, {"Location": url, routing.RUN_HEADER: run})


async def _of_tenant(parts: Parts, tenant: str, at_least: int = 0) -> AsyncIterator[Schedule]:
    """Yield the schedules of a tenant; none if they are certainly fewer than `at_least`. Raises BusError."""
    known = await parts.entries.keys(keys.schedule_entry.pattern(tenant=tenant))
    for start in range(0, len(known) if len(known) >= at_least else 0, _READ_AT_ONCE):
        for entry in (await parts.entries.get_many(known[start : start + _READ_AT_ONCE])).values():
            if (schedule := entry.parsed(Schedule)) is not None:
                yield schedule


async def _find(parts: Parts, caller: Caller, schedule_id: str) -> tuple[str, Schedule]:
    """Return a schedule that the caller may see, and the key of its entry. Raises NotFound and BusError."""
    try:
        key = keys.schedule_entry(caller.tenant, schedule_id)
    except InvalidName:
        raise NotFound from None
    schedule = (await parts.entries.get_from_leader(key)).parsed(Schedule)
    if schedule is None or not caller.may_see(schedule.request.user_id):
        raise NotFound
    return key, schedule


async def _requested(parts: Parts, caller: Caller, schedule_id: str, run: RunInput) -> RunRequested:
    """Return the request that each run is made from, checked as that of a run now. Errors name fields of `run`."""
    if run.images:
        raise InvalidInput(f"{_REQUEST}.images", "a schedule shows no images")
    try:
        check_page(parts.pages, run)
        requested = run_request(caller, schedule_id, run, routing.RequestIds(), [])
        requested = requested.model_copy(update={"schedule_id": schedule_id})
        await parts.models.check_name(run.model)
    except (InvalidInput, NotAllowed) as problem:
        problem.extra["errors"] = [{**each, "field": f"{_REQUEST}.{each['field']}"} for each in problem.extra["errors"]]
        raise
    encoded(requested)
    if requested.session_id is not None:
        # Whether another run has the turn when the schedule fires is not known yet.
        await parts.sessions.check_turn(caller, requested.model_copy(update={"on_busy": "queue", "on_paused": "queue"}))
    return requested


async def _notify(parts: Parts, tenant: str, schedule_id: str) -> None:
    """Have a planner set the timer of a schedule, or remove it. Raises TryAgain."""
    subject, data = subjects.control(tenant, schedule_id, "set"), ScheduleSet().model_dump_json().encode()
    await parts.writer.store(subject, data, f"{schedule_id}-set-{new_id()}")


def _is_webhook(schedule: Schedule) -> bool:
    return schedule.cron is None and schedule.at is None


def view_of(request: Request, schedule: Schedule, *, is_listed: bool = False) -> ScheduleView:
    """Return what is shown of a schedule.

    `is_listed`: with one of its next times, and the question alone: times of rare ones take milliseconds to find, and
    runs are large.
    """
    requested = schedule.request
    run: dict[str, Any] = {"query": requested.query[:_QUESTION_CHARACTERS]}
    upcoming = [] if schedule.next_at is None else [times.shown(schedule, schedule.next_at)]
    if not is_listed:
        run = requested.model_dump(mode="json", include=set(_SHOWN), exclude_defaults=True)
        upcoming = times.next_times(schedule, unix_ms())
    return ScheduleView(
        schedule_id=schedule.schedule_id,
        name=schedule.name,
        cron=schedule.cron,
        at=None if schedule.at is None else times.shown(schedule, schedule.at),
        time_zone=schedule.time_zone,
        missed=schedule.missed,
        webhook_url=routing.address_of(request, f"/v1/hooks/{schedule.schedule_id}") if _is_webhook(schedule) else None,
        run=run,
        key_id=requested.key_id,
        user_id=requested.user_id,
        created_at=schedule.created_at,
        next=upcoming,
        last=None if schedule.last_at is None else times.shown(schedule, schedule.last_at),
        last_run=schedule.last_run,
    )


def _schedule(caller: Caller, given: ScheduleInput, requested: RunRequested, digest: str) -> Schedule:
    """Return a new schedule. `digest`: of the body. Raises InvalidInput for no trigger, or one that never fires."""
    named = [name for name in _TRIGGERS if getattr(given, name)]
    if len(named) != 1:
        wrong = "name one of them only" if named else "name one of cron, at and webhook"
        raise InvalidInput.of_fields(dict.fromkeys(named or _TRIGGERS, wrong).items())
    if given.webhook and given.time_zone is not None:
        raise InvalidInput("time_zone", "a webhook has no times; leave it out")
    zone_name = given.time_zone or ("UTC" if given.cron else None)
    zone = _of_field("time_zone", lambda: times.zone_of(zone_name or "")) if zone_name is not None else None
    cron = _of_field("cron", lambda: times.checked_cron(given.cron or "")) if given.cron else None
    at = _of_field("at", lambda: times.moment_from_text(given.at or "", zone)) if given.at else None
    now = unix_ms()
    schedule = Schedule(
        schedule_id=requested.run_id,
        tenant=caller.tenant,
        name=given.name,
        cron=cron,
        at=at,
        time_zone=zone_name,
        missed=given.missed,
        request=requested,
        body_sha256=digest,
        max_runs=caller.max_runs,
        created_at=now,
    )
    next_at = times.first_after(schedule, now)
    if next_at is None and not given.webhook:
        raise InvalidInput(named[0], "lies in the past" if given.at else "names no date that comes in 50 years")
    return schedule.model_copy(update={"next_at": next_at})


def _of_field(field: str, check: Callable[[], T]) -> T:
    """Return what a check returns. Raises InvalidInput with its reason."""
    try:
        return check()
    except ValueError as error:
        raise InvalidInput(field, str(error)) from error


def new_secret() -> str:
    """Return a secret of 32 random bytes, in the form of Standard Webhooks."""
    return WEBHOOK_KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


_UNKNOWN = Webhook(tenant="", secret=new_secret())
"""Checked in place of a webhook that does not exist."""


class _Json(RootModel[Any]):
    """Any JSON."""


async def deliver(parts: Parts, request: Request, webhook_id: str) -> tuple[str, str]:
    """Return the run and the session of a delivery.

    Raises NotFound, BodyTooLarge, BodyTooSlow, InvalidInput, KeyBudgetSpent, TooManyRuns and TryAgain.
    """
    bucket = Bucket(parts.bus, keys.RUNS_BUCKET, attempts=1)
    if parts.deliveries.locked():
        raise TryAgain("Too many deliveries are being checked.")
    async with parts.deliveries:
        body = await read_body(request, BodyLimit(MAX_WEBHOOK_BYTES, drained_bytes=MAX_WEBHOOK_BYTES))
        try:
            found = (await bucket.get(keys.webhook_entry(webhook_id))).parsed(Webhook)
        except InvalidName:
            found = None
        webhook = found or _UNKNOWN
        given = [request.headers.getlist(name) for name in SIGNING_HEADERS]
        delivery, timestamp, signatures = [values[0] if len(values) == 1 else "" for values in given]
        if not is_signed(webhook.secret, delivery, timestamp, signatures, body) or webhook is _UNKNOWN:
            raise NotFound
    schedule = (await bucket.get_from_leader(keys.schedule_entry(webhook.tenant, webhook_id))).parsed(Schedule)
    if schedule is None:
        raise NotFound
    run = started_run_id(schedule.tenant, webhook_id, delivery)
    requested = schedule.request.model_copy(
        update={
            "run_id": run,
            "requested_at": unix_ms(),
            "trace_id": new_id(),
            "llm_context": {**schedule.request.llm_context, "webhook": parse(_Json, body).root},
        }
    )
    budget = requested.key_budget or KeyBudget()
    caller = Caller(
        tenant=schedule.tenant,
        key_id=requested.key_id,
        max_runs=schedule.max_runs,
        max_tokens_per_day=budget.max_tokens,
        max_cost_usd_per_day=budget.max_cost_usd,
    )
    await accept_made(parts, caller, requested)
    return run, requested.session_id or own_session_id(run)


def is_signed(secret: str, delivery: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Return whether one of the signatures of a delivery, which must not be old, was made with the secret."""
    signed = f"{delivery}.{timestamp}.".encode("latin-1", "replace") + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix(WEBHOOK_KEY_PREFIX)), signed, hashlib.sha256)
    wanted = b"v1," + base64.b64encode(digest)
    matches = [hmac.compare_digest(each.encode("latin-1", "replace"), wanted) for each in signatures.split(" ")[:16]]
    is_recent = _TIMESTAMP.fullmatch(timestamp) is not None and abs(unix_ms() / 1000 - int(timestamp)) <= MAX_AGE_S
    is_id = _VISIBLE.fullmatch(delivery) is not None and _ENDS_WITH_NUMBER.search(delivery) is None
    return any(matches) and is_recent and is_id
