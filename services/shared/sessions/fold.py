"""Folds the records of a session's log. Pure: no clock, no await.

The state is bounded, since each checkpoint is one message: the newest 200 turns and 400 KiB of them, the newest 100
runs that ended, and the tasks (`task_fold`). Where all of it together is still too large, `checkpoint` leaves out the
oldest turns.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from contracts.runs.pauses import OpenPause
from contracts.sessions import proposals as of_proposals
from contracts.sessions import records
from contracts.sessions.records import CHECKPOINT_HEADER, Checkpoint, SessionEvent, SessionRecord
from contracts.sessions.tasks import TASK_EVENT_TYPES, TaskEnded
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.records import types_in
from services.shared.budgets.totals import spent
from services.shared.runs.causes import CAUSES
from services.shared.sessions import proposals
from services.shared.sessions import task_fold as tasks
from services.shared.sessions.state import CurrentRun, QueuedRun, RecentRun, Session, Turn

MAX_TURNS = 200
MAX_TURNS_BYTES = 400 * 1024
"""All turns together, as JSON."""
MAX_RECENT_RUNS = 100
MAX_OLDER_RUNS = 2_000
MAX_PAUSES_OF_TASKS = 100
MAX_STATE_BYTES = MAX_RECORD_BYTES - 1024
"""Largest state in a checkpoint, as JSON."""


def fold(session: Session, seq: int, record: SessionRecord) -> Session:
    """Return the session after a record. An event of a newer version changes nothing."""
    # What is forgotten does not make a session younger: it may be the last thing before its own retention ends.
    at = session.updated_at if record.types() == "runs_forgotten" else record.at
    by = record.by if "context_set" in record.types() else session.context_by
    session = _with(session, seq=seq, records=session.records + 1, updated_at=at, context_by=by)
    return after(session, record.events)


def after(session: Session, events: Iterable[SessionEvent]) -> Session:
    """Return the session after these events, in the record that is its newest one."""
    for event in events:
        take = _FOLDS.get(event.type)
        if take is not None:
            session = take(session, event)
        elif isinstance(event, of_proposals.ProposalEvent):
            session = _with(
                session, proposals=proposals.fold(session.proposals, event, session.seq, session.updated_at)
            )
        elif event.type in TASK_EVENT_TYPES:
            session = _with(session, background=tasks.fold(session.background, event, session.updated_at))
            if isinstance(event, TaskEnded):
                usage = spent(session.usage, event.usage, tool_calls=event.usage.tool_calls)
                session = _with(session, usage=usage, pauses=_pauses_without(session, event.task_id))
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


def _pauses_without(session: Session, run: str) -> list[OpenPause]:
    return [pause for pause in session.pauses if pause.run_id != run]


def newest_checkpoint(headers: Mapping[str, str] | None, sequence: int) -> int:
    """Return the sequence of the newest checkpoint as of a record, from its headers and its own sequence; 0: none."""
    return sequence if "checkpoint" in types_in(headers) else int((headers or {}).get(CHECKPOINT_HEADER) or 0)


def _with(session: Session, **changes: object) -> Session:
    return session.model_copy(update=changes)


def _queued(session: Session, event: records.RunQueued) -> Session:
    if event.cause == "summary":
        return _with(session, summary_run=event.run, summary_requested_at=session.updated_at)
    entry = QueuedRun.model_validate(event, from_attributes=True)
    queue = [entry, *session.queue] if event.is_first else [*session.queue, entry]
    background = tasks.run_joined(session.background, event.run)
    return _with(session, queue=queue, runs=session.runs + 1, background=background)


def _begun(session: Session, event: records.RunBegun) -> Session:
    entry = session.queued(event.run)
    if entry is None:
        return session
    fields = entry.model_dump(include={"run", "requested_at", "cause", "yielded_seq"})
    current = CurrentRun(**fields, begun_seq=session.seq)
    changes: dict[str, object] = {"current": current, "queue": _without(session.queue, event.run)}
    if not CAUSES[entry.cause].gives_way:
        changes |= {"turn_seq": session.seq, "previous_turn_seq": session.turn_seq}
    return _with(session, **changes)


def _yielded(session: Session, event: records.RunYielded) -> Session:
    current = session.current
    if current is None or current.run != event.run:
        return session
    entry = QueuedRun(**current.model_dump(include={"run", "requested_at", "cause"}), yielded_seq=session.seq)
    return _with(session, current=None, queue=[*session.queue, entry])


def _missed(session: Session, event: records.InputMissed) -> Session:
    entry = session.queued(event.run)
    if entry is None:
        return session
    others = _without(session.queue, entry.run)
    missed = entry.model_copy(update={"forwarded_to": None, "was_missed": True})
    place = max((place for place, each in enumerate(others, 1) if each.was_missed), default=0)
    return _with(session, queue=[*others[:place], missed, *others[place:]])


def _closed(session: Session, entry: RecentRun, **more: object) -> Session:
    """Note that a run is no longer open. `more`: further changes."""
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
    return _with(session, **changes, **({"current": None} if had_turn else {}), **more)


def _without(queue: list[QueuedRun], run: str) -> list[QueuedRun]:
    return [each for each in queue if each.run != run]


def _waits(session: Session, event: records.RunWaits) -> Session:
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


def _ended(session: Session, event: records.RunEnded) -> Session:
    entry, current = session.queued(event.run), session.current
    had_turn = (current is not None and current.run == event.run) or (entry is not None and entry.yielded_seq > 0)
    changes: dict[str, object] = {"usage": spent(session.usage, event.usage, tool_calls=event.usage.tool_calls)}
    if event.run == session.summary_run:
        return _with(session, summary_run="", **changes)
    if had_turn and event.question:
        turns = _turns_with(session, event)
        older = session.older_turns + len(session.turns) + 1 - len(turns)
        changes |= {"turns": turns, "older_turns": older}
    if event.payloads:
        changes["proposals"] = proposals.with_payloads(session.proposals, event.run, event.payloads)
    return _closed(session, RecentRun(run=event.run), **changes)


def _turns_with(session: Session, event: records.RunEnded) -> list[Turn]:
    """Return the turns with the newest one, and without the oldest where they are too many or too large."""
    turn = Turn.model_validate(event, from_attributes=True)
    turns = [*session.turns, turn.model_copy(update={"size": len(turn.model_dump_json())})][-MAX_TURNS:]
    excess, cut = sum(each.size for each in turns) - MAX_TURNS_BYTES, 0
    while excess > 0 and cut < len(turns) - 1:
        excess -= turns[cut].size
        cut += 1
    return turns[cut:]


def _summarised(session: Session, event: records.Summarised) -> Session:
    usage = spent(session.usage, event.usage, tool_calls=event.usage.tool_calls)
    place = next((at for at, turn in enumerate(session.turns, 1) if turn.run == event.through), 0)
    return _with(
        session,
        usage=usage,
        summary_run="",
        summary=event.text,
        summarised_turns=max(session.summarised_turns, session.older_turns + place),
    )


def _forgotten(session: Session, event: records.RunsForgotten) -> Session:
    forgotten, older = set(event.runs), session.older_turns
    places = [place for place, turn in enumerate(session.turns) if turn.run in forgotten]
    may_be_older = older > 0 and len(places) < len(forgotten - session.background.tasks.keys())
    in_summary = may_be_older or any(older + place < session.summarised_turns for place in places)
    turns = [turn for turn in session.turns if turn.run not in forgotten]
    session = _with(
        session,
        turns=turns,
        background=tasks.forgotten(session.background, forgotten),
        proposals={key: each for key, each in session.proposals.items() if each.run not in forgotten},
    )
    if in_summary:
        session = _with(session, summary="", summarised_turns=0)
    return _with(session, summary_run="") if in_summary or places else session


_FOLDS: dict[str, Callable[[Session, Any], Session]] = {
    "session_started": lambda session, event: _with(
        session, session_id=event.session_id, user_id=event.user_id, created_at=session.updated_at
    ),
    "run_queued": _queued,
    "run_begun": _begun,
    "run_yielded": _yielded,
    "input_forwarded": lambda session, event: _with(
        session,
        queue=[
            each.model_copy(update={"forwarded_to": event.into}) if each.run == event.run else each
            for each in session.queue
        ],
    ),
    "run_merged": lambda session, event: _closed(session, RecentRun(run=event.run, merged_into=event.into)),
    "input_missed": _missed,
    "run_refused": lambda session, event: _closed(session, RecentRun(run=event.run, fault=event.fault)),
    "run_waits": _waits,
    "run_ended": _ended,
    "context_set": lambda session, event: _with(
        session, context={name: value for name, value in (session.context | event.values).items() if value is not None}
    ),
    "summarised": _summarised,
    "approved_for_session": lambda session, event: _with(
        session, approvals=session.approvals | {(event.rule, event.tool, event.agent, event.user_id)}
    ),
    "runs_forgotten": _forgotten,
    "deleting": lambda session, _event: _with(session, is_deleting=True),
    "deleted": lambda session, _event: Session(seq=session.seq, records=session.records, deleted_seq=session.seq),
    "checkpoint": lambda session, event: _with(
        Session.model_validate(event.state), seq=session.seq, checkpoint_seq=session.seq, records=0
    ),
}
