"""A run until its turn in its session has come. Pure.

A run joins its session by `Enter`. If it cannot begin at once, its own log says so first (`queued`): every message that
the session sends to it finds that record. So does that of a report whose turn went to a user's run before it
began (`yielded`): who still begins it with that turn is refused.
"""

from contracts.runs.events import Attached, Done, Queued, RunStarted, Yielded
from contracts.runs.inbox import RunBegins, RunMerged, RunRefused, RunYields, SessionAttached, TimerFired
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunRequested
from contracts.sessions.records import SessionQueueExpired
from contracts.wire.faults import Fault
from services.planner.run import commands
from services.planner.run.commands import Ack, Append, Command, Handling, Progress
from services.planner.run.ending import terminal
from services.planner.run.state.run import Begun, Busy, Place, Refused, Run, Waiting
from services.shared.runs.causes import CAUSES

_DELETED = Fault(code="already_ended", reason="the session had a run with this id, which was deleted")
ANSWERED_BY = "This question was added to a run that was at work, and is answered there: run"


def request_of(run: Run, message: commands.Received) -> RunRequested | None:
    """Return the request of a run that this message may open; None for any other message."""
    if isinstance(message, RunBegins):
        # Of a turn that was given away since, it opens nothing: the turn comes again.
        return run.queued.request if run.queued is not None and message.session_seq > run.turn_news_seq else None
    return message if isinstance(message, RunRequested) else None


def place_of(message: commands.Received, progress: Progress) -> Place | None:
    """Return the run's place, as far as this handling knows it."""
    return Begun(message.session_seq) if isinstance(message, RunBegins) else progress.place


def before_opening(run: Run, handling: Handling, request: RunRequested) -> Command | None:
    """Return what comes before the run may be opened; None: it may be opened now."""
    if request.session_id is None or not CAUSES[request.cause].has_turn:
        return None
    progress = handling.progress
    place = place_of(handling.incoming.message, progress)
    if isinstance(place, Begun) and place.session_seq > run.turn_news_seq:
        return None
    if isinstance(place, Refused):
        return Append([terminal.failed(run, place.fault, request.trace_id)])
    if run.queued is None:
        if isinstance(place, Waiting):  # It has a log, so this is refused, or had one.
            return Append([terminal.failed(run, _DELETED, request.trace_id)])
        if not isinstance(place, Busy):
            return commands.Enter(is_queued=False)
        if request.tool_context and not progress.context_kept:
            return commands.KeepContext()
        until = request.requested_at + int(request.queue_timeout_s * 1000)
        listed = request.model_copy(update={"tool_context": {}})
        return Append([Queued(request=listed, has_tool_context=bool(request.tool_context), queue_until=until)])
    if ("queue", run.queued.queue_until) not in progress.timers:
        return commands.SetTimer("queue", run.queued.queue_until)
    if not isinstance(place, Waiting):
        return commands.Enter(is_queued=True)
    return Ack() if progress.opened else commands.Open()


def while_queued(run: Run, handling: Handling, message: commands.Received) -> Command:
    """Return the next command for a message that does not open the run."""
    if isinstance(message, RunYields) and message.session_seq > run.turn_news_seq:
        # A process that was stopped before it began the run, and does not know this, is refused.
        return Append([Yielded(seq=message.session_seq)])
    if run.queued is None:
        return Ack()  # A late message of a run that has been purged.
    match message:
        case RunMerged(into=into):
            payload = FinalPayload(raw_answer=f"{ANSWERED_BY} {into}.", route="merged", extra={"run_id": into})
            return Append([Done(**payload.model_dump(), reason="answer_complete", usage=run.usage)])
        case RunRefused(fault=fault):
            return Append([terminal.failed(run, fault, run.queued.request.trace_id)])
        case TimerFired(timer="queue") if not handling.progress.notified:
            return commands.NotifySession("queue_expired", SessionQueueExpired(run=run.queued.request.run_id))
        case _:
            return Ack()


def attach(run: Run, message: SessionAttached) -> Command:
    """Return the next command when a session continues from this run."""
    if run.session_id is not None or (run.started is None and run.queued is None and run.seq):
        return Ack()
    return Append([Attached(session_id=message.session_id)])


def opened(started: RunStarted, run: Run, place: Place | None, now: int) -> RunStarted:
    """Return the fact that opens a run which has the turn. The deadline of a queued run counts from `now`."""
    if not isinstance(place, Begun):
        return started
    changes: dict[str, object] = {"conversation_seq": place.session_seq}
    if run.queued is not None:
        changes["has_tool_context"] = run.queued.has_tool_context
        if started.limits.deadline_s is not None:
            changes["deadline_at"] = now + int(started.limits.deadline_s * 1000)
    return started.model_copy(update=changes)
