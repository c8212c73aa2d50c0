"""Messages to a run that exists: end it, or raise its limits."""

import structlog

from contracts import subjects
from contracts.ids import new_id, run_id_for_key
from contracts.inbox import CancelRequested, TopUpRequested
from contracts.runs import LimitsInput

from .run_request import given_limits
from .writer import MessageWriter

logger = structlog.get_logger(__name__)


class RunControl:
    """Writes control messages."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer

    async def cancel(self, tenant: str, run: str, reason: str) -> None:
        """Request that a planner ends the run. Raises TryAgain."""
        message = CancelRequested(reason=reason).model_dump_json().encode()
        await self._writer.store(subjects.control(tenant, run, "cancel"), message, f"{run}-cancel")
        logger.info("cancel_requested", run_id=run, tenant=tenant)

    async def top_up(self, tenant: str, run: str, limits: LimitsInput, key: str | None) -> None:
        """Request that the run may spend more; the same `key` counts once. Raises TryAgain."""
        top_up_id = run_id_for_key(tenant, f"{run}\n{key}") if key else new_id()
        message = TopUpRequested(id=top_up_id, limits=given_limits(limits)).model_dump_json().encode()
        subject = subjects.control(tenant, run, f"top_up-{top_up_id}")
        await self._writer.store(subject, message, f"{run}-top_up-{top_up_id}")
        logger.info("top_up_requested", run_id=run, tenant=tenant)
