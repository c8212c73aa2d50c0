"""Accept a run: what `POST /v1/runs` and `POST /chat` have in common.

The order is: the body, its idempotency key (a known run is returned whatever has changed since), its session, the
model, the budget of the key, the tenant's quota, its images, and only then the request itself. A caller that follows
the run has subscribed by then, and has nothing to read back.
"""

import asyncio
from dataclasses import dataclass

import structlog
from fastapi import Request

from contracts.artifacts.images import ImageRef
from contracts.runs.requests import RunInput, RunRequested
from contracts.wire import subjects
from contracts.wire.ids import new_id, own_session_id
from services.gateway.artifacts.images import InputImages
from services.gateway.auth.caller import Caller
from services.gateway.auth.key_budgets import KeyBudgets
from services.gateway.catalogue.models import ModelProfiles
from services.gateway.edge.idempotency import already_stored, idempotency_key
from services.gateway.edge.open_streams import OpenStreams
from services.gateway.edge.request_body import RunInputReader
from services.gateway.edge.request_ids import request_ids
from services.gateway.runs.quota import RunQuota
from services.gateway.runs.reader import RunReader
from services.gateway.runs.run_request import encoded, image_digests, run_request
from services.gateway.runs.writer import MessageWriter
from services.gateway.sessions.reader import SessionReader
from services.messaging.connection import Bus
from services.messaging.tenants.time_slices import TimeSlices
from services.messaging.writes import Acknowledged
from services.shared.runs.run_follower import RunFollower

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted run, and its follower, which the caller stops.

    `waits_for_planner`: whether no planner has opened it, as far as is known.
    """

    run: str
    session_id: str
    follower: RunFollower
    waits_for_planner: bool = True


class Submissions:
    """Accepts runs."""

    def __init__(
        self,
        bus: Bus,
        reader: RunInputReader,
        runs: RunReader,
        sessions: SessionReader,
        models: ModelProfiles,
        budgets: KeyBudgets,
        quota: RunQuota,
        images: InputImages,
        writer: MessageWriter,
        streams: OpenStreams,
    ) -> None:
        self._bus = bus
        self._reader = reader
        self._runs = runs
        self._sessions = sessions
        self._models = models
        self._budgets = budgets
        self._quota = quota
        self._images = images
        self._writer = writer
        self._streams = streams
        self._time_slices = TimeSlices()
        """Time slices of tenants at writing requests: a stream stores one message after another, as fast as the disk
        allows."""

    async def accept(
        self, request: Request, caller: Caller, model: type[RunInput], *, is_followed: bool = False
    ) -> Accepted:
        """Store the request for a run; the same key and body always give the same run.

        `is_followed`: the follower subscribes before a new request is stored.

        Raises BodyTooLarge, BodyTooSlow, InvalidInput, NotAllowed, IdempotencyConflict, NotFound, SessionBusy,
        SessionDeleting, KeyBudgetSpent, TooManyRuns, ImageInvalid, VisionUnsupported, and TryAgain when it is unknown
        whether the request was stored. Repeating it with its key is safe.
        """
        tenant = caller.tenant
        async with self._reader.read(request, model) as run_input:
            key = idempotency_key(request)
            run = caller.run_id_for_key(key) if key else new_id()
            digests = await asyncio.to_thread(image_digests, run_input.images) if run_input.images else []
            requested = run_request(caller, run, run_input, request_ids(request), digests)
            data = encoded(requested)
            follower = RunFollower(self._bus, tenant, run)
            session_id = requested.session_id or own_session_id(run)
            if key and (known := await already_stored(self._runs, requested)) is not None:
                return Accepted(run, session_id, follower, known.waits_for_planner)
            if requested.session_id is not None:
                await self._sessions.check_turn(caller, requested)
            await self._models.check_name(run_input.model)
            await self._budgets.check(caller)
            async with self._quota.admitted(caller, run):
                if run_input.images:
                    images = await self._streams.while_connected(
                        request.receive,
                        self._stored_images(caller, requested, run_input),
                        "The gateway is stopping; nothing was accepted.",
                    )
                    data = encoded(requested.model_copy(update={"images": images}))
                if is_followed:
                    await follower.start(is_new=True)
                try:
                    if (await self._write(requested, data)).is_repeated:
                        follower.read_back()
                        await already_stored(self._runs, requested)
                except BaseException:
                    await follower.stop()
                    raise
        logger.info("run_accepted", run_id=run, tenant=tenant, key_id=caller.key_id)
        return Accepted(run, session_id, follower)

    async def accept_made(self, caller: Caller, requested: RunRequested) -> None:
        """Store a request that the gateway has made for a caller, unless its run is known.

        Raises BodyTooLarge, KeyBudgetSpent, TooManyRuns and TryAgain.
        """
        data = encoded(requested)
        if await self._runs.find(requested.tenant, requested.run_id) is None:
            await self._budgets.check(caller)
            async with self._quota.admitted(caller, requested.run_id):
                await self._write(requested, data)
            logger.info("run_accepted", run_id=requested.run_id, tenant=caller.tenant, key_id=caller.key_id)

    async def _stored_images(self, caller: Caller, requested: RunRequested, run_input: RunInput) -> list[ImageRef]:
        await self._models.check_vision(requested.model, requested.agent, requested.vision)
        return await self._images.store(caller, requested.run_id, requested.session_id, run_input.images)

    async def _write(self, requested: RunRequested, data: bytes) -> Acknowledged:
        tenant, run = requested.tenant, requested.run_id
        await self._time_slices.take(tenant, is_new=True)
        try:
            return await self._writer.store(subjects.request(tenant, run), data, run)
        finally:
            self._time_slices.give_back(tenant)
