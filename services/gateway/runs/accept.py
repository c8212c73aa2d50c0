"""Accept a run: what every way to ask for one has in common, and the request that is stored for planners.

The order is: the body, its idempotency key (a known run is returned whatever has changed since), its session, the
model, the budget of the key, the tenant's quota, its images, and only then the request itself. If the caller follows
the run, it is subscribed before the request is stored: it misses no event, so none has to be read back.

The same idempotency key with the same body always gives the same run: the run's id follows from the key. The server
says that a write was repeated, and not whether it had the same body. So the stored request is read before a write, and
again after a repeated one, and the digests of the bodies are compared.
"""

import asyncio
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import Request

from contracts.artifacts import ImageInput, ImageRef
from contracts.runs.requests import CallInput, JobRequested, LimitsInput, MemoryInput, RunInput, RunRequested
from contracts.wire import names
from contracts.wire.base import MAX_REQUEST_BYTES
from contracts.wire.names import new_id, own_session_id, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import RequestIds, idempotency_key, request_ids
from services.gateway.errors import BadCursor, BodyTooLarge, IdempotencyConflict, InvalidInput, NotFound
from services.gateway.parts import Parts
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.redaction.stored_values import holds_reference
from services.shared.runs.pages.registry import OF_PAGES, Pages, UnknownPlace
from services.shared.runs.run_follower import RunFollower

from .reader import RunReader, StoredRun

logger = structlog.get_logger(__name__)
NO_SUCH_TOOL = "There is no such tool; GET /v1/tools lists those that there are."
_WITHOUT_NULL: dict[type[LimitsInput | MemoryInput], frozenset[str]] = {
    LimitsInput: frozenset({"max_steps", "max_parallel", "grace_s"}),
    MemoryInput: frozenset({"recent_turns", "max_tokens"}),
}
"""Fields in which null means that the caller did not set them."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted run, and its follower, which the caller stops.

    `waits_for_planner`: whether no planner has opened it, as far as is known. `requested_at`: Unix ms.
    """

    run: str
    session_id: str
    follower: RunFollower
    requested_at: int
    waits_for_planner: bool = True


async def accept(
    parts: Parts,
    request: Request,
    caller: Caller,
    model: type[RunInput],
    *,
    is_followed: bool = False,
    resumed: str | None = None,
) -> Accepted:
    """Store the request for a run; the same key and body always give the same run.

    `is_followed`: the follower subscribes before a new request is stored. `resumed`: the run that `Last-Event-ID`
    names. It exists already, so no run is started.

    Raises BadCursor, BodyTooLarge, BodyTooSlow, InvalidInput, NotAllowed, IdempotencyConflict, NotFound, SessionBusy,
    SessionDeleting, KeyBudgetSpent, TooManyRuns, ImageInvalid, VisionUnsupported, and TryAgain when it is unknown
    whether the request was stored. Repeating it with its key is safe.
    """
    async with parts.bodies.read(request, model) as run_input:
        return await accept_input(parts, request, caller, run_input, is_followed=is_followed, resumed=resumed)


async def accept_input(
    parts: Parts,
    request: Request,
    caller: Caller,
    run_input: RunInput,
    *,
    is_followed: bool = False,
    resumed: str | None = None,
    run: str | None = None,
) -> Accepted:
    """Do the same for a body that was read. `run`: the run's id, where the caller has made it."""
    tenant, key = caller.tenant, idempotency_key(request)
    run = caller.run_id_for_key(key) if key else resumed or run or new_id()
    if resumed not in {None, run}:
        raise BadCursor("Last-Event-ID is the id of another run's event than that of the Idempotency-Key.")
    digests = await asyncio.to_thread(image_digests, run_input.images) if run_input.images else []
    check_page(parts.pages, run_input)
    requested = run_request(caller, run, run_input, request_ids(request), digests)
    data = encoded(requested)
    follower = RunFollower(parts.bus, tenant, run)
    session_id = requested.session_id or own_session_id(run)
    if (key or resumed) and (known := await _already_stored(parts.runs, requested)) is not None:
        return Accepted(run, session_id, follower, known.status().requested_at, known.waits_for_planner)
    if resumed:
        raise NotFound
    if requested.session_id is not None:
        may_change = await parts.sessions.check_turn(caller, requested)
        if caller.is_limited:
            requested = requested.model_copy(update={"may_change": may_change or run})
            data = encoded(requested)
    await parts.models.check_name(run_input.model)
    await parts.budgets.check(caller)
    async with parts.quota.admitted(caller, run):
        if run_input.images:
            storing = store_images(parts, caller, requested, run_input.images)
            detail = "The gateway is stopping; nothing was accepted."
            images = await parts.streams.while_connected(request.receive, storing, detail)
            data = encoded(requested.model_copy(update={"images": images}))
        await _store(parts, requested, data, follower, is_followed=is_followed)
    logger.info("run_accepted", run_id=run, tenant=tenant, key_id=caller.key_id)
    return Accepted(run, session_id, follower, requested.requested_at)


async def accept_call(
    parts: Parts, request: Request, caller: Caller, name: str, given: CallInput, run: str | None = None
) -> Accepted:
    """Store the request for a run that makes one call of a tool; its follower has subscribed.

    `run`: its id, where there is no idempotency key. Raises BodyTooLarge, InvalidInput, NotAllowed, RightMissing,
    NotFound for a tool that is not there, IdempotencyConflict, KeyBudgetSpent, TooManyRuns, and TryAgain when it is
    unknown whether the request was stored.
    """
    key = idempotency_key(request)
    run = caller.run_id_for_key(key) if key else run or new_id()
    requested = call_request(caller, run, name, given, request_ids(request))
    follower = RunFollower(parts.bus, caller.tenant, run)
    accepted = Accepted(run, own_session_id(run), follower, requested.requested_at)
    if key and await _already_stored(parts.runs, requested) is not None:
        return accepted
    if (spec := parts.tools().get(name)) is None:
        raise NotFound(NO_SUCH_TOOL)
    if spec.hidden:
        caller.require("apply")
    if not holds_reference(given.args):  # tool_runner, which checks again, puts values in place of references first.
        with suppress(InvalidSchema):
            async with parts.checks.of(caller.tenant):
                found = await asyncio.to_thread(complaints, given.args, spec.input_schema)
            if found:
                raise InvalidInput("args", "; ".join(found))
    await parts.budgets.check(caller)
    async with parts.quota.admitted(caller, run):
        await _store(parts, requested, encoded(requested), follower, is_followed=True)
    logger.info("run_accepted", run_id=run, tenant=caller.tenant, key_id=caller.key_id, tool=name)
    return accepted


async def _store(
    parts: Parts, requested: RunRequested, data: bytes, follower: RunFollower, *, is_followed: bool
) -> None:
    if is_followed:
        await follower.start(is_new=True)
    try:
        if (await parts.writer.store_request(requested.tenant, requested.run_id, data)).is_repeated:
            follower.read_back()
            await _already_stored(parts.runs, requested)
    except BaseException:
        await follower.stop()
        raise


async def accept_made(parts: Parts, caller: Caller, requested: RunRequested) -> None:
    """Store a request that the gateway has made for a caller, unless its run is known.

    Raises BodyTooLarge, KeyBudgetSpent, TooManyRuns and TryAgain.
    """
    data = encoded(requested)
    if await parts.runs.find(requested.tenant, requested.run_id) is None:
        await parts.budgets.check(caller)
        async with parts.quota.admitted(caller, requested.run_id):
            await parts.writer.store_request(requested.tenant, requested.run_id, data)
        logger.info("run_accepted", run_id=requested.run_id, tenant=caller.tenant, key_id=caller.key_id)


async def store_images(
    parts: Parts, caller: Caller, requested: RunRequested, images: list[ImageInput]
) -> list[ImageRef]:
    """Store the images of a run whose model takes them. Raises VisionUnsupported, and what `InputImages` raises."""
    await parts.models.check_vision(requested.model, requested.agent, requested.vision)
    return await parts.images.store(caller, requested.run_id, requested.session_id, images)


async def _already_stored(runs: RunReader, request: RunRequested) -> StoredRun | None:
    """Return the run if its request is stored already. Raises IdempotencyConflict for one with another body."""
    found = await runs.find(request.tenant, request.run_id)
    if found is None:
        if await runs.is_deleted(request.tenant, request.run_id):
            raise IdempotencyConflict("The run of this Idempotency-Key was deleted; ask with another one.")
        return None
    stored = found.request()
    if stored is not None and stored.body_sha256 != request.body_sha256:
        raise IdempotencyConflict
    return found


def run_request(
    caller: Caller, run_id: str, run_input: RunInput, given_ids: RequestIds, image_digests: list[dict[str, Any]]
) -> RunRequested:
    """Return the request, still without images, with what the caller's key adds.

    Raises NotAllowed, and InvalidInput for an impossible name of a tool, and for messages beside a session.
    """
    for number, name in enumerate(run_input.tools or ()):
        try:
            names.checked_tool(name)
        except names.InvalidName as error:
            raise InvalidInput(f"tools.{number}", str(error)) from error
    if run_input.messages and run_input.session_id is not None:
        raise InvalidInput.of_fields(
            [("messages", "a session has its own conversation"), ("session_id", "leave it out, or the messages")]
        )
    # Defaults are left out of the digest: a version with a new field still recognises the requests of this one.
    content = {
        **run_input.model_dump(exclude={"limits", "images", "memory"}, exclude_defaults=True),
        "limits": given_fields(run_input.limits),
    }
    if memory := given_fields(run_input.memory):
        content["memory"] = memory
    return RunRequested(
        **{**content, **caller.request_fields(run_input)},
        run_id=run_id,
        may_change=run_id if caller.is_limited else None,
        requested_at=unix_ms(),
        trace_id=given_ids.trace_id or new_id(),
        request_id=given_ids.request_id,
        body_sha256=digest_of({**content, "images": image_digests} if image_digests else content),
    )


def check_page(pages: Pages, run_input: RunInput) -> None:
    """Raise InvalidInput for a page, tab or subtab that is not registered, and for a strategy that knows no pages."""
    if run_input.page is None:
        return
    try:
        pages.parts(run_input.page)
    except UnknownPlace as error:
        raise InvalidInput(f"page.{error.field}", str(error)) from error
    if run_input.strategy not in {None, OF_PAGES}:
        raise InvalidInput("strategy", f"a request with a page has the strategy {OF_PAGES}: leave it out")


def call_request(caller: Caller, run_id: str, tool: str, given: CallInput, given_ids: RequestIds) -> RunRequested:
    """Return the request for a run that makes one call. Raises NotAllowed, and NotFound for no tool's name."""
    if not names.TOOL_NAME.pattern.fullmatch(tool):
        raise NotFound(NO_SUCH_TOOL)
    caller.check_tool(tool, "name")
    shared = given.model_dump(include={"agent", "user_id", "tool_context", "limits"}, exclude_unset=True)
    requested = run_request(caller, run_id, RunInput(query=tool, tools=[tool], **shared), given_ids, [])
    content = {**given.model_dump(exclude={"limits"}, exclude_defaults=True), "limits": given_fields(given.limits)}
    job = JobRequested(tool=tool, args=given.args)
    return requested.model_copy(
        update={"cause": "call", "job": job, "body_sha256": digest_of({"tool": tool, **content})}
    )


def encoded(request: RunRequested) -> bytes:
    """Return the request as JSON. Raises BodyTooLarge."""
    data = request.model_dump_json().encode()
    if len(data) > MAX_REQUEST_BYTES:
        raise BodyTooLarge(MAX_REQUEST_BYTES, "The request as it is stored")
    return data


def given_fields(part: LimitsInput | MemoryInput) -> dict[str, Any]:
    """Return the fields of a part of the body that the caller set."""
    given, without_null = part.model_dump(exclude_unset=True), _WITHOUT_NULL[type(part)]
    return {name: value for name, value in given.items() if value is not None or name not in without_null}


def digest_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a body, whatever the order and spacing of its JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def image_digests(images: list[ImageInput]) -> list[dict[str, Any]]:
    """Return the images as the caller gave them, with a digest in place of their bytes."""
    content = [image.model_dump(exclude={"data"}, exclude_defaults=True) for image in images]
    for given, image in zip(content, images, strict=True):
        if image.data is not None:
            given["data"] = hashlib.sha256(image.data.encode(errors="surrogatepass")).hexdigest()
    return content
