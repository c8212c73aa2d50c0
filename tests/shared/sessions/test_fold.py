"""What the log of a session adds up to."""

import orjson
import pytest

from contracts.sessions import records, tasks
from contracts.wire.base import MAX_RECORD_BYTES
from services.shared.sessions import fold as session_fold
from services.shared.sessions.fold import MAX_TURNS, checkpoint, fold
from services.shared.sessions.state import Session


def folded(session: Session, *events: records.KnownSessionEvent) -> Session:
    """The session after one more record."""
    return fold(session, session.seq + 1, records.SessionRecord(at=session.seq + 1, events=list(events)))


def with_turns(count: int, answer: str = "yes") -> Session:
    """A session in which so many runs have ended."""
    session = folded(Session(), records.SessionStarted(session_id="s"))
    for number in range(count):
        run = f"{number:032x}"
        session = folded(session, records.RunQueued(run=run, requested_at=number), records.RunBegun(run=run))
        session = folded(session, records.RunEnded(run=run, outcome="done", question="why?", answer=answer))
    return session


def with_tasks(session: Session, count: int) -> Session:
    """The session with so many tasks, each with a query of 200 characters; half have ended, with long results."""
    for number in range(count):
        task = f"{number:032x}"[::-1]
        opened = tasks.GroupOpened(
            group_id=task, run="f" * 32, timeout_at=1_700_000_000_000, report_as={"agent": "clerk"}
        )
        spawned = tasks.TaskSpawned(
            task_id=task,
            group_id=task,
            run="f" * 32,
            call_id=f"{number}-1",
            name=f"part {number}",
            mode="subagent",
            query="x" * 200 if number < 300 else "",
            requested_at=1_700_000_000_000,
        )
        events: list[records.KnownSessionEvent] = [opened, spawned, tasks.GroupSealed(group_id=task, by="spawn")]
        if number % 2:
            ended = tasks.TaskEnded(task_id=task, outcome="succeeded", digest="x" * tasks.MAX_DIGEST_BYTES)
            report = tasks.Reported(report_id=task[::-1], group_id=task, kind="task", tasks=[task])
            events += [ended, tasks.GroupEnded(group_id=task, status="complete"), report]
        session = folded(session, *events)
    return session


def test_a_checkpoint_of_a_thousand_tasks_beside_the_longest_turns_fits_a_record() -> None:
    """Nothing is left out for it."""
    session = with_tasks(with_turns(MAX_TURNS, answer="a" * 8000), 1000)
    assert sum(turn.size for turn in session.turns) > 390 * 1024
    event = checkpoint(session)
    assert event is not None
    assert len(records.SessionRecord(events=[event]).model_dump_json()) < MAX_RECORD_BYTES
    assert Session.model_validate_json(orjson.dumps(event.state)) == session


def test_a_checkpoint_that_would_be_too_large_leaves_out_the_oldest_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """And everyone who folds it has the same state."""
    monkeypatch.setattr(session_fold, "MAX_STATE_BYTES", 20_000)
    session = with_turns(20, answer="a" * 2000)
    event = checkpoint(session)
    assert event is not None
    assert len(orjson.dumps(event.state)) <= 20_000
    loaded = folded(session, event)
    assert 0 < len(loaded.turns) < 20
    assert loaded.turns == session.turns[-len(loaded.turns) :]
    assert len(loaded.turns) + loaded.older_turns == 20
    assert checkpoint(with_tasks(session, 1000)) is None


def test_a_checkpoint_is_the_state_before_it() -> None:
    """But for the sequences, which are those of its own record."""
    session = folded(with_turns(3), records.ContextSet(values={"city": "Bern", "gone": None}))
    state = session.model_dump(mode="json", exclude_defaults=True)
    loaded = folded(Session(seq=session.seq), records.Checkpoint(state=orjson.loads(orjson.dumps(state))))
    assert loaded.checkpoint_seq == loaded.seq == session.seq + 1
    same = {"seq": 0, "checkpoint_seq": 0, "records": 0}
    assert loaded.model_copy(update=same) == session.model_copy(update=same)
    assert loaded.context == {"city": "Bern"}


def test_a_forgotten_turn_takes_a_summary_with_it_that_may_hold_it() -> None:
    """A later turn leaves the summary, and the session is no younger for it."""
    session = with_turns(4)
    session = folded(session, records.Summarised(through=f"{1:032x}", run="e" * 32, text="they said yes"))
    later = folded(session, records.RunsForgotten(runs=[f"{3:032x}"]))
    assert (later.summary, later.summarised_turns, later.updated_at) == ("they said yes", 2, session.updated_at)
    assert [turn.run for turn in later.turns] == [f"{number:032x}" for number in range(3)]
    for runs in ([f"{1:032x}"], ["d" * 32]):
        older = session.model_copy(update={"older_turns": 0 if runs[0][0] == "0" else 1})
        forgotten = folded(older, records.RunsForgotten(runs=runs))
        assert (forgotten.summary, forgotten.summarised_turns) == ("", 0)
    assert folded(session, records.RunsForgotten(runs=["d" * 32])).summary == "they said yes"
