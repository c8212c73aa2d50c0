"""Decides what happens in a session. Pure: no clock, no await, no randomness.

`offer` and `receive` give the events that a request or a message leads to; none: it changes nothing, for example
because it was handled before. `commands` gives what follows from the state after them. It depends on the state and the
message only, so a redelivery of the message repeats the commands. What each message may do:

| message | none | idle | busy |
| --- | --- | --- | --- |
| request, queue | session_started, run_queued, run_begun | run_queued, run_begun | run_queued |
| request, steer | session_started, run_queued, run_begun | run_queued, run_begun | run_queued, input_forwarded |
| request, reject | session_started, run_queued, run_begun | run_queued, run_begun | run_refused |
| request, cancel | session_started, run_queued, run_begun | run_queued, run_begun | run_queued; Cancel |
| run_ended | nothing | nothing | run_ended, run_begun; Begin |
| run_ended, queued run | nothing | nothing | run_ended |
| run_waits | nothing | nothing | run_waits |
| input_taken | nothing | run_merged; Merged | run_merged; Merged |
| input_missed | nothing | input_missed, run_begun; Begin | input_missed |
| queue_expired | nothing | run_refused; Refuse | run_refused; Refuse |
| context | session_started, context_set | context_set | context_set |
| approved | nothing | approved_for_session | approved_for_session |
| forget | nothing | runs_forgotten; Trim | Trim |
| delete | nothing | deleting; Purge | deleting; Cancel |

none: there is no session, or it was deleted. idle: nobody has the turn. busy: a run has it. While that run does nothing
but wait for a person, `on_paused` of a request counts, and not `on_busy`. While a report has the turn, neither counts:
it gives the turn to a user's run (`run_yielded`), and begins again when no user's run waits. A further request of a run
that the session knows changes nothing. While the session is being deleted, each request is refused, and nobody gets the
turn.

Messages about background tasks, and what the end of a run means for these: `services.planner.sessions.tasks.machine`.

After `run_ended` a summary may be due (`memory`): then `run_queued` of its run is recorded too, and RequestSummary
follows. The end of that run leads to `summarised`, or to `run_ended` if there is no summary.
"""

from dataclasses import dataclass
from typing import assert_never

from contracts.runs import inbox
from contracts.runs.requests import OnBusy, RunRequested
from contracts.sessions import records, tasks
from contracts.sessions.proposals import SessionProposalControl
from contracts.wire.faults import Fault
from contracts.wire.names import run_of_own_session
from services.planner.run.state.run import Begun, Place, Refused, Waiting
from services.planner.sessions import memory, proposals
from services.planner.sessions.tasks import machine
from services.shared.redaction.json_values import wire_size
from services.shared.runs.causes import CAUSES
from services.shared.sessions.fold import after
from services.shared.sessions.state import Session

MAX_QUEUED_RUNS = 1000
REPLACED = "another request of the session takes its place"
DELETED = "the session is being deleted"

Received = (
    records.SessionRunEnded
    | records.SessionRunWaits
    | records.SessionInputTaken
    | records.SessionQueueExpired
    | records.SessionContextRequested
    | records.SessionApproved
    | records.SessionRunsForgotten
    | records.SessionDeletionRequested
    | tasks.SessionTaskMessage
    | tasks.SessionTaskCalled
    | SessionProposalControl
)
Events = list[records.KnownSessionEvent]


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell a queued run that it has the turn. `session_seq`: the record up to which it knows the conversation.

    `again`: it had the turn before.
    """

    run: str
    session_seq: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a run a message. `about`: the run that the message is about.

    `Forward` in the table: text and images of a queued run for the run that has the turn. `Merged`: that run took them.
    `Attach`: the run, which was requested without a session, belongs to this one.
    """

    run: str
    message: (
        inbox.InputRequested
        | inbox.CancelRequested
        | inbox.RunMerged
        | inbox.RunRefused
        | inbox.SessionAttached
        | inbox.RunYields
    )
    about: str


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Write the session's entry in the index."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete all records up to a checkpoint, with what they say of forgotten runs."""


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the session, its runs and its artifacts, since no run of it is open any more; or what is left of it."""


Command = Begin | Tell | memory.RequestSummary | proposals.RequestApply | WriteEntry | Trim | Purge
"""What follows from the state of a session. All commands are idempotent."""


def begins_at_once(session: Session, request: RunRequested) -> bool:
    """Whether the run of a request would have the turn at once."""
    return (session.current is None or _takes_turn(session, request)) and _refusal(session, request) is None


def offer(session: Session, request: RunRequested) -> Events:
    """Return what a request leads to."""
    run = request.run_id
    if place_of(session, run) is not None:
        return []
    refusal = _refusal(session, request)
    if refusal is not None:
        return [records.RunRefusedBySession(run=run, fault=refusal)]
    begun = [] if session.exists else [_started(request)]
    on_busy, current = _on_busy(session, request), session.current
    is_first = current is not None and on_busy == "cancel"
    queued = records.RunQueued(
        run=run, cause=request.cause, on_busy=on_busy, requested_at=request.requested_at, is_first=is_first
    )
    queued_with = [queued, *proposals.superseded(session, request)]
    if current is None:
        return [*begun, *queued_with, records.RunBegun(run=run)]
    if _takes_turn(session, request):
        return [*queued_with, records.RunYielded(run=current.run), records.RunBegun(run=run)]
    return [*queued_with, *([records.InputForwarded(run=run, into=current.run)] if on_busy == "steer" else [])]


def _takes_turn(session: Session, request: RunRequested) -> bool:
    """Whether a report has the turn, which a user's run takes."""
    current = session.current
    is_report = current is not None and CAUSES[current.cause].gives_way
    return is_report and not CAUSES[request.cause].gives_way


def _started(request: RunRequested) -> records.SessionStarted:
    return records.SessionStarted(
        session_id=request.session_id or "", created_by=request.key_id, user_id=request.user_id
    )


def _refusal(session: Session, request: RunRequested) -> Fault | None:
    if not session.exists:
        return None
    if request.is_user_pinned and session.user_id != request.user_id:
        return Fault(code="not_found", reason="there is no such session")
    if session.is_deleting:
        return Fault(code="session_deleting", reason="the session is being deleted", retryable=True)
    if session.current is None:
        return None
    if _on_busy(session, request) == "reject":
        return Fault(code="session_busy", reason="another run of the session has the turn", retryable=True)
    if len(session.queue) >= MAX_QUEUED_RUNS and not CAUSES[request.cause].gives_way:
        reason = f"{MAX_QUEUED_RUNS} runs of the session wait for their turn"
        return Fault(code="session_busy", reason=reason, retryable=True)
    return None


def _on_busy(session: Session, request: RunRequested) -> OnBusy:
    current = session.current
    if _takes_turn(session, request):
        return "queue"
    on_busy = request.on_paused if current is not None and current.waits else request.on_busy
    changes_another = current is not None and request.may_change not in {None, current.run}
    return "queue" if on_busy in {"steer", "cancel"} and changes_another else on_busy


def adopt(session: Session, session_id: str, first: RunRequested, ended: records.RunEnded | None) -> Events:
    """Begin a session with the run that it continues from. `first`: that run's request; `ended`: None if it is open."""
    run = first.run_id
    if session.exists or run_of_own_session(session_id) != run or first.session_id is not None:
        return []
    if not CAUSES[first.cause].has_turn:
        return []  # Nobody asked anything: the session begins with the new question.
    started = _started(first).model_copy(update={"session_id": session_id})
    queued = records.RunQueued(run=run, requested_at=first.requested_at)
    begun: Events = [started, queued, records.RunBegun(run=run)]
    if ended is None:
        return begun
    return [*begun, ended, *proposals.turn_ended(after(session, [*begun, ended]), ended)]


def place_of(session: Session, run: str) -> Place | None:
    """Return the place of a run; None if the session does not know it."""
    if session.current is not None and session.current.run == run:
        return Begun(session.current.begun_seq)
    if session.queued(run) is not None:
        return Waiting()
    recent = session.recent_run(run)
    if recent is None:
        return None
    return Waiting() if recent.fault is None else Refused(recent.fault)


def receive(session: Session, message: Received, by: str) -> Events:
    """Return what a message leads to. `by`: `<stream>:<sequence>` of the message."""
    if not session.exists:
        if not isinstance(message, records.SessionContextRequested):
            return []
        started = records.SessionStarted(session_id=message.session_id, created_by=message.by, user_id=message.user_id)
        return [started, records.ContextSet(values=message.values, by=message.by)]
    events = _received(session, message, by)
    if not events or not session.queue:
        return events  # Nobody joins the queue by a message.
    later = after(session, events)
    if later.is_deleting or later.current is not None:
        return events
    ready = (each for each in later.queue if each.forwarded_to is None)
    following = min(ready, key=lambda each: CAUSES[each.cause].gives_way, default=None)  # Users before reports.
    return events if following is None else [*events, records.RunBegun(run=following.run)]


def _received(session: Session, message: Received, by: str) -> Events:  # noqa: C901, one case for each message
    match message:
        case records.SessionRunEnded():
            return _ended(session, message)
        case records.SessionRunWaits(waits=waits):
            return [waits] if _is_news(session, waits) else []
        case records.SessionInputTaken(run=run, into=into, taken=taken):
            entry = session.queued(run)
            if entry is None or entry.forwarded_to != into:
                return []
            return [records.RunMergedInto(run=run, into=into) if taken else records.InputMissed(run=run, into=into)]
        case records.SessionQueueExpired(run=run):
            fault = Fault(code="queue_timeout", reason="the run waited too long for its turn", retryable=True)
            return [records.RunRefusedBySession(run=run, fault=fault)] if session.queued(run) is not None else []
        case records.SessionContextRequested():
            return _context(session, message, by)
        case records.SessionApproved(approved=approved):
            return _if_new(session, approved)
        case records.SessionRunsForgotten(runs=runs):
            released = [each for run in runs for each in proposals.apply_ended(session, run, "deleted")]
            return [*_if_new(session, records.RunsForgotten(runs=runs)), *released]
        case records.SessionDeletionRequested(by=by, unchanged_since=at):
            is_wanted = at is None or session.updated_at <= at
            return _if_new(session, records.SessionDeleting(by=by)) if is_wanted else []
        case tasks.SessionTaskCalled() | tasks.SessionTaskControl() | tasks.SessionGroupDue():
            return [*machine.receive(session, message)]
        case SessionProposalControl():
            return [*proposals.controlled(session, message)]
        case _:
            assert_never(message)


def _if_new(session: Session, fact: records.KnownSessionEvent) -> Events:
    return [fact] if after(session, [fact]) != session else []


def _is_news(session: Session, waits: records.RunWaits) -> bool:
    """Whether a message about what a run waits for is newer than what the session knows."""
    task, current = session.background.tasks.get(waits.run), session.current
    if task is not None:
        return task.status == "running" and task.waits_seq < waits.seq
    return current is not None and current.run == waits.run and current.waits_seq < waits.seq


def _ended(session: Session, message: records.SessionRunEnded) -> Events:
    """Return what the end of a run leads to. Which run it is the session knows: a poisoned one cannot say its cause."""
    ended = message.ended
    if ended.run in session.background.tasks:
        return [*machine.run_ended(session, message)]
    if applied := proposals.apply_ended(
        session, ended.run, ended.code or message.reason or ended.outcome, message.report
    ):
        return [*applied]
    if CAUSES[message.cause].has_turn and ended.run != session.summary_run:
        if not session.is_open(ended.run):
            return []
        later = after(session, [ended])
        follows = [*machine.run_ended(later, message), *proposals.turn_ended(later, ended)]
        if later.is_deleting or later.summary_run or not memory.covered(later, message.memory):
            return [ended, *follows]
        run = memory.summary_run(session.session_id, ended.run)
        return [ended, *follows, records.RunQueued(run=run, cause="summary", requested_at=0)]
    if ended.run != session.summary_run:
        return []
    if ended.outcome != "done" or not ended.answer or message.through is None:
        return [ended.model_copy(update={"question": "", "answer": ""})]
    return [
        records.Summarised(
            through=message.through, run=ended.run, text=ended.answer, model=message.model, usage=ended.usage
        )
    ]


def _context(session: Session, message: records.SessionContextRequested, by: str) -> Events:
    sequence, known = (int(owner.partition(":")[2] or 0) for owner in (by, session.context_by))
    if session.is_deleting or sequence <= known:
        return []
    change = records.ContextSet(values=message.values, by=message.by)
    if wire_size(after(session, [change]).context) > records.MAX_CONTEXT_BYTES:
        return []
    return [change]


def commands(session: Session, cause: RunRequested | Received) -> list[Command]:
    """Return what follows from the state, after the request or message was handled."""
    if not session.exists:
        return [Purge()] if session.deleted_seq else []  # The planner that deleted it may have died before.
    if session.is_deleting:
        # No entry is written: it could come after its removal.
        # Tasks may be many: they are cancelled once, and each that is requested later (`tasks.commands`).
        open_runs, tasks = session.open_runs(), session.background.tasks
        cancels_all = isinstance(cause, records.SessionDeletionRequested)
        cancelled = [run for run in open_runs if cancels_all or run not in tasks]
        return [_cancel(session, run, DELETED) for run in cancelled] if open_runs else [Purge()]
    current = session.current
    is_asked = current is not None and isinstance(cause, RunRequested) and cause.run_id == current.run
    begins = bool(session.background.reports) if current is None else current.begun_seq == session.seq
    is_next = begins and isinstance(cause, records.SessionRunEnded)
    # Where a run has just begun, or a report is about to, the entry is written with that of the run, or at its end.
    entry = [] if is_asked or is_next else [WriteEntry()]
    return [*entry, *_of_turn(session, cause), *_of_cause(session, cause)]


def _cancel(session: Session, run: str, reason: str) -> Tell:
    return Tell(run, inbox.CancelRequested(reason=reason, session_id=session.session_id), run)


def _of_turn(session: Session, cause: RunRequested | Received) -> list[Command]:
    current = session.current
    if current is None:
        return []
    found: list[Command] = []
    is_own_call = isinstance(cause, tasks.SessionTaskCalled) and cause.run == current.run
    is_end_of_task = isinstance(cause, records.SessionRunEnded) and cause.ended.run in session.background.tasks
    if not (isinstance(cause, RunRequested) and cause.run_id == current.run):
        # That request begins its run itself.
        if run_of_own_session(session.session_id) == current.run:
            found.append(Tell(current.run, inbox.SessionAttached(session_id=session.session_id), current.run))
        elif current.yielded_seq or not (is_own_call or is_end_of_task):
            found.append(Begin(current.run, current.begun_seq, again=current.yielded_seq > 0))
    for each in session.queue:
        if each.yielded_seq:
            yields = inbox.RunYields(session_seq=each.yielded_seq)
            found.append(Tell(each.run, yields, f"{each.run[:16]}-{each.yielded_seq}"))
    if any(each.is_first for each in session.queue):
        found.append(_cancel(session, current.run, REPLACED))
    return found


def _of_cause(session: Session, cause: RunRequested | Received) -> list[Command]:
    match cause:
        case RunRequested(run_id=run):
            entry = session.queued(run)
            if entry is None or not entry.forwarded_to:
                return []
            text = inbox.InputRequested(
                id=run,
                text=cause.query,
                images=cause.images,
                run=run,
                into=entry.forwarded_to,
                session_id=cause.session_id,
                by=cause.key_id,
                user_id=cause.user_id,
            )
            return [Tell(entry.forwarded_to, text, run)]
        case records.SessionInputTaken(run=run) | records.SessionQueueExpired(run=run):
            recent = session.recent_run(run)
            if recent is not None and recent.merged_into is not None:
                return [Tell(run, inbox.RunMerged(into=recent.merged_into), run)]
            fault = recent.fault if recent is not None else None
            return [Tell(run, inbox.RunRefused(fault=fault), run)] if fault is not None else []
        case records.SessionRunsForgotten():
            return [Trim()]
        case SessionProposalControl():
            return [*proposals.commands(session, cause)]
        case records.SessionRunEnded(ended=ended, memory=kept) if kept is not None:
            is_due = session.summary_run == memory.summary_run(session.session_id, ended.run)
            return [memory.RequestSummary(session.summary_run, kept, cause.key_id, cause.key_budget)] if is_due else []
        case _:
            return []
