"""Logs one line for each run that has ended, and for each call that was refused before it was sent.

The tool runner logs the calls that were sent. No line holds a prompt, an argument or a value.
"""

import structlog

from contracts.runs.events import Cancelled, Done, Error, Observed
from contracts.wire.records import Record
from services.planner.run.state.run import Run

logger = structlog.get_logger(__name__)
_REFUSED = frozenset({"rejected", "approval_expired"})


def log_end(tenant: str, run_id: str, run: Run, record: Record) -> None:
    """Log the run's end, if the record that this process just wrote holds it."""
    end = next((event for event in record.events if isinstance(event, Done | Error | Cancelled)), None)
    if end is None:
        return
    request = run.request
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


def log_refusals(run_id: str, record: Record) -> None:
    """Log the calls that a person rejected, or that nobody approved in time: they were never sent."""
    for event in record.events:
        if isinstance(event, Observed) and event.failure is not None and event.failure.code in _REFUSED:
            logger.info("call_failed", run_id=run_id, call_id=event.call_id, tool=event.tool, code=event.failure.code)


def _code(end: Done | Error | Cancelled) -> str:
    if isinstance(end, Done):
        return end.reason
    return end.code if isinstance(end, Error) else "cancelled"
