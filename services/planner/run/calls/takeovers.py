"""Direct calls whose message was delivered again while the handling that made them goes on. Pure.

Two handlings of one message may go on at a time: one process was stopped, or its heartbeats came too late.
Only direct calls have outcomes that one handling alone knows, so only they are taken over.
Rule 1: the later handling sends the direct calls of the earlier one through CALLS, and acknowledges the message. The
outcomes come through INBOX, and the handling that takes them goes on with the run.
Rule 2: it announces these calls again before it acknowledges, as calls that are not direct. From then on the earlier
handling drops their outcomes. Otherwise it would go on for a message that is not delivered again, and the run would
stand still if its process died.
"""

from contracts.runs.events import Called
from contracts.runs.inbox import CallFinished
from contracts.sessions.tasks import TASK_TOOLS
from services.planner.run.commands import Append, Handling
from services.planner.run.state.run import Run


def own_outcomes(run: Run, handling: Handling) -> list[CallFinished]:
    """Return the outcomes of the open calls that this handling has made, and no other one has taken over.

    A call about tasks is never direct: its outcome is here if it was too large to send.
    """
    outcomes = [(run.open.get(outcome.call_id), outcome) for outcome in handling.progress.outcomes]
    return [
        outcome
        for call, outcome in outcomes
        if call is not None and (call.direct is not None or call.tool in TASK_TOOLS)
    ]


def take_over(run: Run, handling: Handling) -> Append | None:
    """Return the record by which a handling takes over the direct calls that it has sent through CALLS, if any."""
    sent = handling.progress.dispatched - handling.progress.announced
    calls = [
        call.model_copy(update={"direct": None})
        for call in run.open.values()
        if call.direct is not None
        and call.call_id in sent
        and run.owner.get(call.call_id) == handling.incoming.owner  # Its tool may have paused it meanwhile.
    ]
    if not calls or run.step is None:
        return None
    called = Called(step=run.step.step, by=handling.incoming.owner, calls=calls)
    return Append([called] if run.paused is None else [called, run.paused])
