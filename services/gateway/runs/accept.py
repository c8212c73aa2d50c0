"""Accept a run: what every way to ask for one has in common.

The order is: the body, its idempotency key (a known run is returned whatever has changed since), its session, the
model, the budget of the key, the tenant's quota, its images, and only then the request itself. A caller that follows
the run has subscribed by then, and has nothing to read back.

The same idempotency key with the same body always gives the same run: the run's id follows from the key. The server
says that a write was repeated, and not whether it had the same body. So the stored request is read before a write, and
again after a repeated one, and the digests of the bodies are compared.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import structlog
from fastapi import Request

from contracts.artifacts.images import ImageRef
from contracts.runs.requests import CallInput, RunInput, RunRequested
from contracts.wire.names import new_id, own_session_id
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import idempotency_key, request_ids
from services.gateway.errors import BadCursor, IdempotencyConflict, InvalidInput, NotFound
from services.gateway.parts import Parts
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.redaction.stored_values import holds_reference
from services.shared.runs.run_follower import RunFollower

from .reader import RunReader, StoredRun
from .run_request import NO_SUCH_TOOL, call_request, check_page, encoded, image_digests, run_request

logger = structlog.get_logger(__name__)


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

    `is_followed`: the follower subscribes before a new request is stored. `resumed`: the run that the request has
    started before, so it starts none.

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
            images = await parts.streams.while_connected(
                request.receive,
                _stored_images(parts, caller, requested, run_input),
                "The gateway is stopping; nothing was accepted.",
            )
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
    """Store a request. `is_followed`: the follower subscribes before."""
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


async def _stored_images(parts: Parts, caller: Caller, requested: RunRequested, run_input: RunInput) -> list[ImageRef]:
    await parts.models.check_vision(requested.model, requested.agent, requested.vision)
    return await parts.images.store(caller, requested.run_id, requested.session_id, run_input.images)


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
