"""What the log of the process says of runs: one line for each that has ended. No prompt, no argument and no value is in it."""

import structlog

from contracts.events import Cancelled, Done, Error
from contracts.records import Record
from services.planner.run.state import Run

logger = structlog.get_logger(__name__)


def log_end(tenant: str, run_id: str, run: Run, record: Record) -> None:
    """Log the run's end, where the record that was just written by this process holds it."""
    end = next((event for event in record.events if isinstance(event, Done | Error | Cancelled)), None)
    if end is None:
        return
    request = run.started.request if run.started else None
    logger.info(
        "run_ended",
        run_id=run_id,
        tenant=tenant,
        agent=request.agent if request else None,
        model=run.model or None,
        status=end.type,
        code=_code(end),
        steps=run.turn,
        model_calls=end.usage.model_calls,
        tool_calls=end.usage.tool_calls,
        prompt_tokens=end.usage.prompt_tokens,
        completion_tokens=end.usage.completion_tokens,
        cost_usd=end.usage.cost_usd,
        ms=record.at - request.requested_at if request else None,
    )


def _code(end: Done | Error | Cancelled) -> str:
    if isinstance(end, Done):
        return end.reason
    return end.code if isinstance(end, Error) else "cancelled"
