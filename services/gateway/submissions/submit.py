"""What the gateway writes: requests for runs, cancellations and top-ups.

Each is stored before its caller gets an answer.

Rule 1: a message id makes repeated writes one; writes are repeated for a few seconds, then the caller gets 503 with
`Retry-After`.
Rule 2: the server cannot say whether a repeated write had the same body, so a keyed request is looked up before and
after it is written.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from contracts import names, subjects
from contracts.ids import new_id, run_id_for_key
from contracts.images import ImageInput, ImageRef
from contracts.inbox import CancelRequested, TopUpRequested
from contracts.limits import MAX_REQUEST_BYTES
from contracts.runs import LimitsInput, RunInput, RunRequested
from services.gateway.errors import BodyTooLarge, IdempotencyConflict, InvalidInput, TryAgain
from services.gateway.stored_runs.reader import Runs
from services.gateway.submissions.quota import OpenRuns
from services.gateway.submissions.request_body import digest_of
from services.messaging.connection import Bus
from services.messaging.errors import FULL, Refused, Unsure
from services.messaging.tenant_turns import Turns

logger = structlog.get_logger(__name__)

_TRY_S = 1.0
_ALREADY = "per subject"
_NEVER_NONE = frozenset({"max_steps", "max_parallel", "grace_s"})

TakeImages = Callable[[str], Awaitable[list[ImageRef]]]
"""Stores the images of a question, for the run with the given id."""


class Intake:
    """Writes requests and cancels."""

    def __init__(self, bus: Bus, runs: Runs, open_runs: OpenRuns, wait_s: float) -> None:
        self._bus = bus
        self._runs = runs
        self._open_runs = open_runs
        self._wait_s = wait_s
        self._turns = Turns()
        """A stream takes one write after another, each as long as the disk needs: those of one tenant must not hold up
        another's."""

    async def accept(
        self,
        tenant: str,
        asked: RunInput,
        key: str | None = None,
        trace: str | None = None,
        take: TakeImages | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> str:
        """Store the request for a run and return the run's id; the same key and body always give the same run.

        For a question that is new and sound `check` may object, and `take` gives the references of its images. Raises
        what they raise, IdempotencyConflict, InvalidInput, BodyTooLarge, TooManyRuns, and TryAgain when nobody knows
        that it was accepted: repeated with a key it is safe.
        """
        images = await asyncio.to_thread(_digests, asked.images) if asked.images else []
        request = _request(tenant, run_id_for_key(tenant, key) if key else new_id(), asked, trace, images)
        data = _encoded(request)
        if key and await self._is_known(request):
            return request.run_id
        if check is not None:
            await check()
        async with self._open_runs.admitted(tenant):
            if asked.images and take is not None:
                request = request.model_copy(update={"images": await take(request.run_id)})
                data = _encoded(request)
            await self._turns.take(tenant, is_new=True)
            try:
                await self._store(subjects.request(tenant, request.run_id), data, request.run_id)
            finally:
                self._turns.give_back(tenant)
        if key:
            await self._is_known(request)
        logger.info("run_accepted", run_id=request.run_id, tenant=tenant)
        return request.run_id

    async def _is_known(self, request: RunRequested) -> bool:
        found = await self._runs.find(request.tenant, request.run_id)
        if found is None:
            if await self._runs.is_deleted(request.tenant, request.run_id):
                raise IdempotencyConflict("The run of this Idempotency-Key was deleted; ask with another one.")
            return False
        stored = found.request()
        if stored is not None and stored.body_sha256 != request.body_sha256:
            raise IdempotencyConflict
        return True

    async def cancel(self, tenant: str, run: str, reason: str) -> None:
        """Ask the planner to end a run. Raises TryAgain."""
        message = CancelRequested(reason=reason).model_dump_json().encode()
        await self._store(subjects.control(tenant, run, "cancel"), message, f"{run}-cancel")
        logger.info("cancel_requested", run_id=run, tenant=tenant)

    async def top_up(self, tenant: str, run: str, limits: LimitsInput, key: str | None) -> None:
        """Ask the planner to let a run spend more; the same key counts once. Raises TryAgain."""
        top_up = TopUpRequested(id=run_id_for_key(tenant, f"{run}\n{key}") if key else new_id(), limits=_set(limits))
        subject = subjects.control(tenant, run, f"top_up-{top_up.id}")
        await self._store(subject, top_up.model_dump_json().encode(), f"{run}-top_up-{top_up.id}")
        logger.info("top_up_requested", run_id=run, tenant=tenant)

    async def _store(self, subject: str, data: bytes, message_id: str) -> None:
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                await self._bus.publish(subject, data, {"Nats-Msg-Id": message_id}, min(_TRY_S, self._wait_s))
            except Unsure as error:
                if time.monotonic() >= deadline:
                    raise TryAgain("The message bus does not answer.") from error
                await self._bus.retry_pause(is_bounded=True)
            except Refused as error:
                if error.code == FULL and _ALREADY in error.text:
                    return  # One request per run: it is there already, and nobody has read it yet.
                logger.warning("write_refused", subject=subject, code=error.code, reason=error.text)
                raise TryAgain("The queue of new runs is full." if error.code == FULL else None, after_s=5) from error
            else:
                return


def _encoded(request: RunRequested) -> bytes:
    data = request.model_dump_json().encode()
    if len(data) > MAX_REQUEST_BYTES:
        raise BodyTooLarge(MAX_REQUEST_BYTES, "The request as it is stored")
    return data


def _digests(images: list[ImageInput]) -> list[dict[str, Any]]:
    """The images as the caller gave them, with a digest in the place of their bytes."""
    content = [image.model_dump(exclude={"data"}, exclude_defaults=True) for image in images]
    for given, image in zip(content, images, strict=True):
        if image.data is not None:
            given["data"] = hashlib.sha256(image.data.encode(errors="surrogatepass")).hexdigest()
    return content


def _request(tenant: str, run: str, asked: RunInput, trace: str | None, images: list[dict[str, Any]]) -> RunRequested:
    for number, name in enumerate(asked.tools or ()):
        try:
            names.checked_tool(name)
        except names.InvalidName as error:
            raise InvalidInput(f"tools.{number}", str(error)) from error
    # Defaults do not count, so that a version with a new field still knows the requests of this one.
    content = {**asked.model_dump(exclude={"limits", "images"}, exclude_defaults=True), "limits": _set(asked.limits)}
    return RunRequested(
        **content,
        run_id=run,
        tenant=tenant,
        requested_at=time.time_ns() // 1_000_000,
        trace_id=trace or new_id(),
        body_sha256=digest_of({**content, "images": images} if images else content),
    )


def _set(limits: LimitsInput) -> dict[str, Any]:
    """The limits that the caller set. null means "without this limit" where that is possible, else "not set"."""
    return {
        name: value
        for name, value in limits.model_dump(exclude_unset=True).items()
        if value is not None or name not in _NEVER_NONE
    }
