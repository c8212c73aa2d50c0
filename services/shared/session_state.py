"""A session as the fold of its log. Pure: no clock, no await.

`Session` is frozen: each record gives a new one, so any of them may be kept. `Checkpoint.state` is `Session` as JSON.
It is bounded, since each checkpoint is one message: the newest 200 turns and 400 KiB of them, the newest 100 runs that
ended, and the tasks (`services.shared.session_tasks`). Where all of it together is still too large, `checkpoint` leaves
out the oldest turns.

The conversation that the next run knows is rendered from `turns`, `older_turns`, `summary`, `summarised_turns` and
`context`. `approvals` says which of its calls need no further approval.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field
from pydantic_core import to_json

from contracts.base import Message
from contracts.faults import Fault
from contracts.limits import MAX_RECORD_BYTES
from contracts.pauses import OpenPause
from contracts.payload import Usage
from contracts.records import EVENTS_HEADER
from contracts.sessions import (
    CHECKPOINT_HEADER,
    ApprovedForSession,
    Checkpoint,
    ContextSet,
    InputForwarded,
    InputMissed,
    RunBegun,
    RunEnded,
    RunMergedInto,
    RunQueued,
    RunRefusedBySession,
    RunWaits,
    SessionEvent,
    SessionRecord,
    SessionStarted,
    Summarised,
)
from contracts.tasks import TASK_EVENT_TYPES, TaskEnded
from services.shared.session_tasks import fold as tasks
from services.shared.session_tasks.state import Background
from services.shared.usage import spent

MAX_TURNS = 200
MAX_TURNS_BYTES = 400 * 1024
"""All turns together, as JSON."""
MAX_RECENT_RUNS = 100
MAX_PAUSES_OF_TASKS = 100
MAX_STATE_BYTES = MAX_RECORD_BYTES - 1024
"""Largest state in a checkpoint, as JSON."""


class Turn(Message):
    """A question and its answer, of a run that had the turn. Both were cut to 8 KiB when the run ended."""

    run: str
    requested_at: int
    question: str
    inputs: list[str] = Field(default_factory=list)
    """Texts that were added while the run went on."""
    answer: str
    outcome: Literal["done", "error", "cancelled"]
    attached: list[str] = Field(default_factory=list)
    """Ids of the images that came with the question."""
    size: int = 0
    """As JSON, in bytes."""


class CurrentRun(Message):
    """The run that has the turn. `begun_seq`: sequence of the record that gave it the turn."""

    run: str
    requested_at: int = 0
    begun_seq: int = 0
    waits: bool = False
    """It does nothing but wait for a person."""
    waits_seq: int = 0
    """Sequence of the run's record that the newest message about its waiting came from."""


class QueuedRun(Message):
    """A run that waits for its turn."""

    run: str
    requested_at: int
    is_first: bool = False
    """It begins next, and the run that has the turn was cancelled for it."""
    forwarded_to: str | None = None
    """The run to which its text was sent. Until that run has answered, this one does not begin."""
    was_missed: bool = False
    """That run did not take the text. So this one begins before those that were queued, in the order of the answers."""


class RecentRun(Message):
    """A run that ended, was merged into another one, or was refused."""

    run: str
    requested_at: int = 0
    merged_into: str | None = None
    fault: Fault | None = None


class Session(Message):
    """What the log of a session adds up to. `seq`: sequence of its newest record, which fences the next append."""

    seq: int = 0
    checkpoint_seq: int = 0
    """Sequence of the newest checkpoint; 0: none."""
    records: int = 0
    """Records since then."""
    deleted_seq: int = 0
    """Sequence of the record that deleted an earlier session with this id; 0: none is known."""

    session_id: str = ""
    """Empty: there is no session."""
    user_id: str | None = None
    created_at: int = 0
    updated_at: int = 0
    is_deleting: bool = False

    current: CurrentRun | None = None
    queue: list[QueuedRun] = Field(default_factory=list)
    recent: list[RecentRun] = Field(default_factory=list)
    """Newest first."""
    pauses: list[OpenPause] = Field(default_factory=list)
    """Of the run that has the turn, and of tasks."""
    runs: int = 0
    usage: Usage = Usage()

    turns: list[Turn] = Field(default_factory=list)
    """Oldest first."""
    older_turns: int = 0
    """Turns that are no longer in `turns`."""
    summary: str = ""
    summarised_turns: int = 0
    """How many turns the summary represents, counted from the first one of the session."""
    summary_run: str = ""
    """The run that makes a summary now; empty: none."""
    summary_requested_at: int = 0
    """Unix ms: of that run."""
    context: dict[str, Any] = Field(default_factory=dict)
    """Values that callers and tasks have set: untrusted data."""
    context_by: str = ""
    """`<stream>:<sequence>` of the message that set values last. An older message sets none."""
    approvals: frozenset[tuple[str, str, str]] = frozenset()
    """Rule, tool and agent of each approval that holds for the session."""
    background: Background = Background()
    """Its tasks and groups, and the results that later runs are shown."""

    @property
    def exists(self) -> bool:
        """Whether there is a session: it has begun, and was not deleted since."""
        return bool(self.session_id)

    def open_runs(self) -> list[str]:
        """Return the run that has the turn, then those that wait for it, tasks, and reports that have not joined."""
        turns = [*([self.current.run] if self.current else []), *(each.run for each in self.queue)]
        tasks_and_reports = [task.task_id for task in self.background.open_tasks()]
        tasks_and_reports += [report.report_id for report in self.background.reports]
        return [*turns, *tasks_and_reports]

    def is_open(self, run: str) -> bool:
        """Whether a run of the session has not ended, as far as the session knows."""
        task = self.background.tasks.get(run)
        return run in self.open_runs() if task is None else task.status == "running"

    def queued(self, run: str) -> QueuedRun | None:
        """Return the entry of a run that waits for its turn."""
        return next((each for each in self.queue if each.run == run), None)

    def recent_run(self, run: str) -> RecentRun | None:
        """Return what became of a run; None for an open one, and for one that ended long ago."""
        return next((each for each in self.recent if each.run == run), None)


def fold(session: Session, seq: int, record: SessionRecord) -> Session:
    """Return the session after a record. An event of a newer version changes nothing."""
    session = _with(session, seq=seq, records=session.records + 1, updated_at=record.at)
    if "context_set" in record.types():
        session = _with(session, context_by=record.by)
    return after(session, record.events)


def after(session: Session, events: Iterable[SessionEvent]) -> Session:
    """Return the session after these events, in the record that is its newest one."""
    for event in events:
        take = _FOLDS.get(event.type)
        if take is not None:
            session = take(session, event)
        elif event.type in TASK_EVENT_TYPES:
            session = _of_tasks(session, event)
    return session


def checkpoint(session: Session) -> Checkpoint | None:
    """Return the state as an event that fits into a record, without the oldest turns if it is too large.

    None: it is too large without any turn.
    """
    while True:
        state = session.model_dump(mode="json", exclude_defaults=True)
        excess = len(to_json(state)) - MAX_STATE_BYTES
        if excess <= 0:
            return Checkpoint(state=state)
        if not session.turns:
            return None
        cut = 0
        while cut < len(session.turns) and excess > 0:
            excess -= session.turns[cut].size
            cut += 1
        session = _with(session, turns=session.turns[cut:], older_turns=session.older_turns + cut)


def _of_tasks(session: Session, event: SessionEvent) -> Session:
    session = _with(session, background=tasks.fold(session.background, event, session.updated_at))
    if not isinstance(event, TaskEnded):
        return session
    usage = spent(session.usage, event.usage, tool_calls=event.usage.tool_calls)
    return _with(session, usage=usage, pauses=_pauses_without(session, event.task_id))


def _pauses_without(session: Session, run: str) -> list[OpenPause]:
    return [pause for pause in session.pauses if pause.run_id != run]


def newest_checkpoint(headers: Mapping[str, str] | None, sequence: int) -> int:
    """Return the sequence of the newest checkpoint as of a record, from its headers and its own sequence; 0: none."""
    headers = headers or {}
    if headers.get(EVENTS_HEADER) == "checkpoint":
        return sequence
    return int(headers.get(CHECKPOINT_HEADER) or 0)


def _with(session: Session, **changes: object) -> Session:
    return session.model_copy(update=changes)


def _started(session: Session, event: SessionStarted) -> Session:
    return _with(session, session_id=event.session_id, user_id=event.user_id, created_at=session.updated_at)


def _queued(session: Session, event: RunQueued) -> Session:
    if event.cause == "summary":
        return _with(session, summary_run=event.run, summary_requested_at=session.updated_at)
    entry = QueuedRun(run=event.run, requested_at=event.requested_at, is_first=event.is_first)
    queue = [entry, *session.queue] if event.is_first else [*session.queue, entry]
    background = tasks.run_joined(session.background, event.run)
    return _with(session, queue=queue, runs=session.runs + 1, background=background)


def _begun(session: Session, event: RunBegun) -> Session:
    entry = session.queued(event.run)
    if entry is None:
        return session
    current = CurrentRun(run=event.run, requested_at=entry.requested_at, begun_seq=session.seq)
    return _with(session, current=current, queue=_without(session.queue, event.run))


def _forwarded(session: Session, event: InputForwarded) -> Session:
    queue = [_sent_to(each, event.into) if each.run == event.run else each for each in session.queue]
    return _with(session, queue=queue)


def _missed(session: Session, event: InputMissed) -> Session:
    entry = session.queued(event.run)
    if entry is None:
        return session
    others = _without(session.queue, entry.run)
    missed = entry.model_copy(update={"forwarded_to": None, "was_missed": True})
    place = max((place for place, each in enumerate(others, 1) if each.was_missed), default=0)
    return _with(session, queue=[*others[:place], missed, *others[place:]])


def _sent_to(entry: QueuedRun, into: str | None) -> QueuedRun:
    return entry.model_copy(update={"forwarded_to": into})


def _merged(session: Session, event: RunMergedInto) -> Session:
    return _closed(session, RecentRun(run=event.run, merged_into=event.into))


def _refused(session: Session, event: RunRefusedBySession) -> Session:
    return _closed(session, RecentRun(run=event.run, fault=event.fault))


def _closed(session: Session, entry: RecentRun) -> Session:
    """Note that a run is no longer open."""
    had_turn = session.current is not None and session.current.run == entry.run
    known = session.current if had_turn else session.queued(entry.run)
    if known is not None:
        entry = entry.model_copy(update={"requested_at": known.requested_at})
    changes: dict[str, object] = {
        "queue": _without(session.queue, entry.run),
        "recent": [entry, *session.recent][:MAX_RECENT_RUNS],
        "background": tasks.run_ended(tasks.run_joined(session.background, entry.run), entry.run),
        "pauses": _pauses_without(session, entry.run),
    }
    return _with(session, **changes, **({"current": None} if had_turn else {}))


def _without(queue: list[QueuedRun], run: str) -> list[QueuedRun]:
    return [each for each in queue if each.run != run]


def _waits(session: Session, event: RunWaits) -> Session:
    others = _pauses_without(session, event.run)
    if session.current is not None and session.current.run == event.run:
        current = session.current.model_copy(update={"waits": event.waits, "waits_seq": event.seq})
        return _with(session, current=current, pauses=[*event.pauses, *others])
    if not session.is_open(event.run) or session.queued(event.run) is not None:
        return session
    background = tasks.run_waits(session.background, event.run, event.seq)
    shown = sum(pause.run_id in background.tasks for pause in others)
    pauses = [*others, *event.pauses[: max(0, MAX_PAUSES_OF_TASKS - shown)]]
    return _with(session, background=background, pauses=pauses)


def _ended(session: Session, event: RunEnded) -> Session:
    had_turn = session.current is not None and session.current.run == event.run
    session = _with(session, usage=spent(session.usage, event.usage, tool_calls=event.usage.tool_calls))
    if event.run == session.summary_run:
        return _with(session, summary_run="")
    if had_turn and event.question:
        session = _with_turn(session, event)
    return _closed(session, RecentRun(run=event.run))


def _with_turn(session: Session, event: RunEnded) -> Session:
    turn = Turn.model_validate(event.model_dump(include=set(Turn.model_fields)))
    turns = [*session.turns, turn.model_copy(update={"size": len(turn.model_dump_json())})]
    kept, total = 0, 0
    for each in reversed(turns[-MAX_TURNS:]):
        total += each.size
        if total > MAX_TURNS_BYTES:
            break
        kept += 1
    cut = len(turns) - kept
    return _with(session, turns=turns[cut:], older_turns=session.older_turns + cut)


def _context(session: Session, event: ContextSet) -> Session:
    merged = {**session.context, **event.values}
    return _with(session, context={name: value for name, value in merged.items() if value is not None})


def _summarised(session: Session, event: Summarised) -> Session:
    usage = spent(session.usage, event.usage, tool_calls=event.usage.tool_calls)
    place = next((at for at, turn in enumerate(session.turns, 1) if turn.run == event.through), 0)
    return _with(
        session,
        usage=usage,
        summary_run="",
        summary=event.text,
        summarised_turns=max(session.summarised_turns, session.older_turns + place),
    )


def _approved(session: Session, event: ApprovedForSession) -> Session:
    return _with(session, approvals=session.approvals | {(event.rule, event.tool, event.agent)})


def _deleting(session: Session, _event: object) -> Session:
    return _with(session, is_deleting=True)


def _deleted(session: Session, _event: object) -> Session:
    return Session(seq=session.seq, records=session.records, deleted_seq=session.seq)


def _checkpoint(session: Session, event: Checkpoint) -> Session:
    state = Session.model_validate(event.state)
    return _with(state, seq=session.seq, checkpoint_seq=session.seq, records=0)


_FOLDS: dict[str, Callable[[Session, Any], Session]] = {
    "session_started": _started,
    "run_queued": _queued,
    "run_begun": _begun,
    "input_forwarded": _forwarded,
    "run_merged": _merged,
    "input_missed": _missed,
    "run_refused": _refused,
    "run_waits": _waits,
    "run_ended": _ended,
    "context_set": _context,
    "summarised": _summarised,
    "approved_for_session": _approved,
    "deleting": _deleting,
    "deleted": _deleted,
    "checkpoint": _checkpoint,
}
