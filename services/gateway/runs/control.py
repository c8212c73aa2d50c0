"""Messages to a run that exists: end it, raise its limits, decide about its pauses, add to it."""

import asyncio
from contextlib import suppress

import structlog

from contracts.runs.events import ControlAnswered
from contracts.runs.inbox import CancelRequested, InputRequested, ResumeRequested, TopUpRequested
from contracts.runs.requests import LimitsInput
from contracts.wire import subjects
from contracts.wire.limits import MAX_ARGUMENT_BYTES
from contracts.wire.names import new_id, run_id_for_key
from services.gateway.errors import BodyTooLarge
from services.gateway.parts import Parts

from . import messages
from .run_request import given_limits

logger = structlog.get_logger(__name__)


async def cancel(parts: Parts, tenant: str, run: str, reason: str) -> None:
    """Request that a planner ends the run. Raises TryAgain."""
    message = CancelRequested(reason=reason).model_dump_json().encode()
    await parts.writer.store(subjects.control(tenant, run, "cancel"), message, f"{run}-cancel")
    logger.info("cancel_requested", run_id=run, tenant=tenant)


async def top_up(parts: Parts, tenant: str, run: str, limits: LimitsInput, key: str | None) -> None:
    """Request that the run may spend more; the same `key` counts once. Raises TryAgain."""
    top_up_id = run_id_for_key(tenant, f"{run}\n{key}") if key else new_id()
    message = TopUpRequested(id=top_up_id, limits=given_limits(limits)).model_dump_json().encode()
    subject = subjects.control(tenant, run, f"top_up-{top_up_id}")
    await parts.writer.store(subject, message, f"{run}-top_up-{top_up_id}")
    logger.info("top_up_requested", run_id=run, tenant=tenant)


async def ask(parts: Parts, tenant: str, run: str, message: ResumeRequested | InputRequested) -> ControlAnswered | None:
    """Send a decision or an input, and return the planner's answer; None if there is none yet.

    Raises BodyTooLarge and TryAgain.
    """
    data = message.model_dump_json().encode()
    if len(data) > MAX_ARGUMENT_BYTES:
        raise BodyTooLarge(MAX_ARGUMENT_BYTES, "The request as it is stored")
    name = f"{message.kind}-{message.id}"
    async with parts.run_answers.expected(subjects.live(tenant, run), message.id) as answer:
        # A repeated request is stored again, since its first answer may have been lost. The planner knows its id.
        await parts.writer.store(subjects.control(tenant, run, name), data, f"{run}-{name}-{new_id()}")
        logger.info("control_requested", kind=message.kind, run_id=run, tenant=tenant)
        with suppress(TimeoutError):
            async with asyncio.timeout(messages.ANSWER_WAIT_S):
                return await answer
    return None
