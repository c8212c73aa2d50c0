"""What the log of a session adds up to."""

import orjson

from contracts.limits import MAX_RECORD_BYTES
from contracts.sessions import (
    Checkpoint,
    ContextSet,
    KnownSessionEvent,
    RunBegun,
    RunEnded,
    RunQueued,
    SessionDeleted,
    SessionRecord,
    SessionStarted,
    Summarised,
)
from services.shared.session_state import MAX_RECENT_RUNS, MAX_TURNS, Session, fold


def folded(session: Session, *events: KnownSessionEvent) -> Session:
    """The session after one more record."""
    return fold(session, session.seq + 1, SessionRecord(at=session.seq + 1, events=list(events)))


def with_turns(count: int, answer: str = "yes") -> Session:
    """A session in which so many runs have ended."""
    session = folded(Session(), SessionStarted(session_id="s"))
    for number in range(count):
        run = f"{number:032x}"
        session = folded(session, RunQueued(run=run, requested_at=number), RunBegun(run=run))
        session = folded(session, RunEnded(run=run, outcome="done", question="why?", answer=answer))
    return session


def test_a_session_keeps_its_newest_turns() -> None:
    """The others are counted."""
    session = with_turns(MAX_TURNS + 5)
    assert (len(session.turns), session.older_turns) == (MAX_TURNS, 5)
    assert session.turns[-1].run == f"{MAX_TURNS + 4:032x}"
    assert len(session.recent) == MAX_RECENT_RUNS
    assert session.current is None


def test_a_checkpoint_of_the_longest_turns_fits_a_record() -> None:
    """Also if each character takes six bytes in JSON."""
    session = with_turns(MAX_TURNS, answer="\x01" * 8192)
    state = session.model_dump(mode="json", exclude_defaults=True)
    assert len(orjson.dumps(state)) < MAX_RECORD_BYTES // 2
    assert len(session.turns) + session.older_turns == MAX_TURNS


def test_a_checkpoint_is_the_state_before_it() -> None:
    """But for the sequences, which are those of its own record."""
    session = folded(with_turns(3), ContextSet(values={"city": "Bern", "gone": None}))
    state = session.model_dump(mode="json", exclude_defaults=True)
    loaded = folded(Session(seq=session.seq), Checkpoint(state=orjson.loads(orjson.dumps(state))))
    assert loaded.checkpoint_seq == loaded.seq == session.seq + 1
    same = {"seq": 0, "checkpoint_seq": 0, "records": 0}
    assert loaded.model_copy(update=same) == session.model_copy(update=same)
    assert loaded.context == {"city": "Bern"}


def test_a_summary_represents_the_turns_up_to_its_run() -> None:
    """The turns stay."""
    session = folded(with_turns(4), Summarised(through=f"{2:032x}", run="f" * 32, text="In short."))
    assert (session.summarised_turns, len(session.turns), session.older_turns) == (3, 4, 0)


def test_a_deleted_session_does_not_exist() -> None:
    """The next record begins another one."""
    session = folded(with_turns(2), SessionDeleted())
    assert not session.exists
    assert session.deleted_seq == session.seq
    assert folded(session, SessionStarted(session_id="s")).turns == []
