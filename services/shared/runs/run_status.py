"""The status of a run, from its request and its log. The gateway shows it, and the planner's index stores it."""

from contracts.runs.events import Cancelled, Done, Error, Terminal
from contracts.runs.payload import Reason
from contracts.runs.requests import RunRequested, RunStatus
from contracts.wire.names import own_session_id

MAX_QUERY_CHARACTERS = 200
"""Characters of the question that a status shows."""


def status_of(
    run_id: str,
    request: RunRequested | None,
    end: Terminal | None,
    *,
    is_open: bool,
    started_at: int | None,
    ended_at: int | None,
) -> RunStatus:
    """Return the status without its payload; times are Unix ms.

    `request`: None when the run was cancelled before its request arrived. `is_open`: whether the run has begun.
    """
    return RunStatus(
        run_id=run_id,
        status=end.type if end else "running" if is_open else "queued",
        agent=request.agent if request else "default",
        query=request.query[:MAX_QUERY_CHARACTERS] if request else "",
        session_id=(request.session_id or own_session_id(run_id)) if request else None,
        user_id=request.user_id if request else None,
        cause=request.cause if request else "user",
        parent=request.parent if request else None,
        requested_at=request.requested_at if request else 0,
        started_at=started_at,
        ended_at=ended_at,
        reason=_reason(end),
        code=end.code if isinstance(end, Error) else None,
        usage=end.usage if end else None,
    )


def _reason(end: Terminal | None) -> Reason | None:
    match end:
        case Done():
            return end.reason
        case Error():
            return "error"
        case Cancelled():
            return "cancelled"
    return None
