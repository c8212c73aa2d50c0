"""What people say to a run that exists: end it, raise its limits, decide about its pauses, add to it."""

import asyncio
from contextlib import suppress
from typing import TypeVar

import structlog
from fastapi import Request, Response

from contracts.artifacts import ImageInput, ImageRef
from contracts.runs.events import ControlAnswered, InputAdded, Resumed
from contracts.runs.inbox import CancelRequested, InputRequested, ResumeRequested, TopUpRequested
from contracts.runs.requests import InputAccepted, InputInput, LimitsInput, ResumeAccepted, ResumeInput
from contracts.sessions.tasks import TASK_TOOLS
from contracts.wire import subjects
from contracts.wire.base import MAX_ARGUMENT_BYTES
from contracts.wire.names import new_id, run_id_for_key
from services.gateway import errors
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import RequestCaller, body_of, idempotency_key, json_answer, needs, new_router
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs.accept import digest_of, given_fields, image_digests, store_images

from . import messages
from .reader import StoredRun

logger = structlog.get_logger(__name__)

Message = TypeVar("Message", ResumeRequested, InputRequested)
LATER = "A planner has the request, and has not answered within 5 s."
STOPPING = "The gateway is stopping; the request may take effect all the same."

router = new_router("runs")


async def cancel(parts: Parts, tenant: str, run: str, reason: str) -> None:
    """Request that a planner ends the run. Raises TryAgain."""
    message = CancelRequested(reason=reason).model_dump_json().encode()
    await parts.writer.store(subjects.control(tenant, run, "cancel"), message, f"{run}-cancel")
    logger.info("cancel_requested", run_id=run, tenant=tenant)


async def top_up(parts: Parts, tenant: str, run: str, limits: LimitsInput, key: str | None) -> None:
    """Request that the run may spend more; the same `key` counts once. Raises TryAgain."""
    top_up_id = run_id_for_key(tenant, f"{run}\n{key}") if key else new_id()
    message = TopUpRequested(id=top_up_id, limits=given_fields(limits)).model_dump_json().encode()
    subject = subjects.control(tenant, run, f"top_up-{top_up_id}")
    await parts.writer.store(subject, message, f"{run}-top_up-{top_up_id}")
    logger.info("top_up_requested", run_id=run, tenant=tenant)


@router.post(
    "/v1/runs/{run_id}/resume",
    dependencies=[needs("approve")],
    response_model=ResumeAccepted,
    responses={202: {"model": ResumeAccepted, "description": LATER}},
    openapi_extra=body_of(ResumeInput, keyed=True),
)
async def resume_run(run_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Decide about a pause of a run. With an `Idempotency-Key` a repeated decision gets the first answer."""
    async with parts.bodies.read(request, ResumeInput) as decision:
        found, message = await _decision(parts, request, caller, run_id, decision)
    del decision  # With the bytes of its images, before a planner is waited for.
    answer = await _answered(parts, request, found, caller, message)
    accepted = ResumeAccepted(run_id=run_id, pause_id=message.pause_id, decision=message.decision)
    return json_answer(accepted, 202 if answer is None else 200)


@router.post(
    "/v1/runs/{run_id}/input",
    dependencies=[needs("run")],
    response_model=InputAccepted,
    responses={202: {"model": InputAccepted, "description": LATER}},
    openapi_extra=body_of(InputInput, keyed=True),
)
async def add_input(run_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Add a text or images to a run; the model receives them with its next decision.

    With an `Idempotency-Key` a repeated input counts once.
    """
    async with parts.bodies.read(request, InputInput) as added:
        found = await parts.runs.get_to_change(caller, run_id)
        message = InputRequested(
            id=_request_id(request, caller, run_id, "input"),
            text=added.text,
            redirect=added.redirect,
            images=await _stored(parts, request, found, caller, added.images),
            by=caller.key_id,
            user_id=caller.user_id,
        )
    del added  # With the bytes of its images, before a planner is waited for.
    answer = await _answered(parts, request, found, caller, message)
    return json_answer(InputAccepted(run_id=run_id, input_id=message.id), 202 if answer is None else 200)


async def decide(parts: Parts, request: Request, caller: Caller, run_id: str, decision: ResumeInput) -> None:
    """Pass a decision on, which was read, and wait for its planner. Raises the problem that it names."""
    found, message = await _decision(parts, request, caller, run_id, decision)
    await _answered(parts, request, found, caller, message)


async def _decision(
    parts: Parts, request: Request, caller: Caller, run_id: str, decision: ResumeInput
) -> tuple[StoredRun, ResumeRequested]:
    found = await parts.runs.get_to_change(caller, run_id)
    pause = next((each for each in found.pauses if each.pause_id == decision.pause_id), None)
    if pause is None:
        pause = await parts.runs.pause_of_task(caller.tenant, run_id, decision.pause_id)
    if pause is not None and pause.run_id != run_id:
        found = await parts.runs.get_to_change(caller, pause.run_id)
    is_about_results = pause is not None and TASK_TOOLS.get(pause.tool or "") in {"apply", "reject"}
    if pause is not None and is_about_results and (decision.decision != "reject" or pause.source != "task"):
        caller.require("apply")  # It decides about held results, or lets a model do so.
    content = decision.model_dump(exclude={"images"}, exclude_defaults=True)
    digests = await asyncio.to_thread(image_digests, decision.images)
    message = ResumeRequested(
        **decision.model_dump(exclude={"images"}),
        id=_request_id(request, caller, run_id, "resume"),
        request_sha256=digest_of({**content, "images": digests}),
        by=caller.key_id,
        user_id=caller.user_id,
    )
    if decision.images and not found.has_ended:
        # Nothing is stored for a decision that a planner will refuse.
        waiting = (await parts.runs.current(caller, run_id)).pauses
        if (decision.pause_id, decision.token) not in {(each.pause_id, each.token) for each in waiting}:
            return found, message
    images = await _stored(parts, request, found, caller, decision.images)
    return found, message.model_copy(update={"images": images})


def _request_id(request: Request, caller: Caller, run: str, kind: str) -> str:
    """Return the id of a decision or an input: the same for the same key."""
    key = idempotency_key(request)
    return caller.run_id_for_key(f"{run}\n{kind}\n{key}") if key else new_id()


async def _stored(
    parts: Parts, request: Request, found: StoredRun, caller: Caller, images: list[ImageInput]
) -> list[ImageRef]:
    """Store the images, unless the run has ended, and return references to them."""
    run = found.request()
    if not images or run is None or found.has_ended:
        return []
    return await parts.streams.while_connected(request.receive, store_images(parts, caller, run, images), STOPPING)


async def ask(parts: Parts, tenant: str, run: str, message: Message) -> ControlAnswered | None:
    """Send a decision or an input, and return the planner's answer; None if there is none yet.

    Raises BodyTooLarge and TryAgain.
    """
    data = message.model_dump_json().encode()
    if len(data) > MAX_ARGUMENT_BYTES:
        raise errors.BodyTooLarge(MAX_ARGUMENT_BYTES, "The request as it is stored")
    name = f"{message.kind}-{message.id}"
    async with parts.run_answers.expected(subjects.live(tenant, run), message.id) as answer:
        # A repeated request is stored again, since its first answer may have been lost. The planner knows its id.
        await parts.writer.store(subjects.control(tenant, run, name), data, f"{run}-{name}-{new_id()}")
        logger.info("control_requested", kind=message.kind, run_id=run, tenant=tenant)
        with suppress(TimeoutError):
            async with asyncio.timeout(messages.ANSWER_WAIT_S):
                return await answer
    return None


async def _answered(
    parts: Parts, request: Request, found: StoredRun, caller: Caller, message: Message
) -> ControlAnswered | None:
    """Return the answer of a planner, None if there is none yet. Raises the problem that it names."""
    if found.has_ended:
        answer = await _recorded(parts, caller.tenant, found.run_id, message)
        if answer is None:
            raise errors.RefusedByPlanner("run_ended", "The run has ended.")
        return answer
    asked = ask(parts, caller.tenant, found.run_id, message)
    answer = await parts.streams.while_connected(request.receive, asked, STOPPING)
    parts.index.answered(caller, found.run_id)
    if answer is None or answer.is_repeated:
        answer = await _recorded(parts, caller.tenant, found.run_id, message) or answer
    if answer is not None and answer.code is not None:
        raise await _problem(parts, caller, found.run_id, answer.code, answer.reason)
    return answer


async def _recorded(parts: Parts, tenant: str, run: str, message: Message) -> ControlAnswered | None:
    """Return the answer to an earlier request with this id. Raises IdempotencyConflict if that had another body."""
    for event in await parts.runs.facts_of(tenant, run):
        answer = messages.answer_in(event)
        if answer is not None and answer.id == message.id:
            if not _is_same(event, message):
                raise errors.IdempotencyConflict
            return answer
    return None


async def _problem(parts: Parts, caller: Caller, run: str, code: str, reason: str) -> errors.Problem:
    match code:
        case "not_found":
            return errors.NotFound()
        case "pause_changed":
            pauses = (await parts.runs.get(caller, run)).pauses
            return errors.RefusedByPlanner(code, reason, pauses=[pause.model_dump(mode="json") for pause in pauses])
        case "invalid_input":
            return errors.InvalidInput("", reason)
        case "idempotency_conflict":
            return errors.IdempotencyConflict()
    return errors.RefusedByPlanner(code, reason)


def _is_same(event: object, message: ResumeRequested | InputRequested) -> bool:
    """Return whether a fact follows from this request, and not from another one with its id."""
    match event, message:
        case Resumed(), ResumeRequested():
            return event.request_sha256 == message.request_sha256
        case Resumed(), InputRequested():  # The text is the answer, its one field, or the note.
            given = event.input.values() if isinstance(event.input, dict) else [event.input]
            is_note = bool(event.note) and message.text.startswith(event.note.removesuffix("…"))
            return is_note or message.text in given
        case InputAdded(), InputRequested():
            return (event.text, event.redirect) == (message.text, message.redirect)
    return True
