"""Conversations in which nothing went wrong."""

from typing import Any

from tests.system.conversations.evidence import Conversations, Decision, Input
from tests.system.traces import Event, Execution, RunEvidence, StoredRecord

FIRST, SECOND, THIRD = ("a" * 32, "b" * 32, "c" * 32)
PAUSE, ANSWERED = "d" * 32, "e" * 32


def _run(run_id: str, *records: tuple[int, list[Event]]) -> RunEvidence:
    stored = [StoredRecord(sequence, "log", 100.0 + sequence, events) for sequence, events in records]
    return RunEvidence(run_id, may_fail=True, records=stored)


def _started(run_id: str, conversation_seq: int) -> Event:
    return {"type": "run_started", "run_id": run_id, "conversation_seq": conversation_seq}


def _done(**more: Any) -> Event:
    return {"type": "done", "reason": "answer_complete", "route": None, "extra": {}, **more}


def sound() -> Conversations:
    """A run with an approval, a question and an added text; one that was merged into it; one after both."""
    calls = [{"call_id": "1-1", "tool": "pay"}, {"call_id": "1-2", "tool": "paint"}]
    paused = {"type": "paused", "reason": "approval", "pause_id": PAUSE, "call_id": "1-1", "digest": "x1"}
    asks = {"type": "paused", "reason": "input", "pause_id": ANSWERED, "call_id": "1-2", "digest": "x2"}
    first = _run(
        FIRST,
        (1, [_started(FIRST, 1)]),
        (2, [{"type": "step", "calls": calls}, paused]),
        (3, [asks]),
        (4, [{"type": "input_added", "id": "i1", "text": "note", "run": None}]),
        (5, [{"type": "resumed", "pause_id": PAUSE, "decision": "approve", "digest": "x1", "note": ""}]),
        (
            6,
            [{"type": "resumed", "pause_id": ANSWERED, "decision": "answer", "digest": "", "input": {"colour": "red"}}],
        ),
        (7, [{"type": "input_added", "id": SECOND, "text": "more", "run": SECOND}]),
        (8, [_done()]),
    )
    second = _run(SECOND, (9, [{"type": "queued"}]), (10, [_done(route="merged", extra={"run_id": FIRST})]))
    third = _run(THIRD, (11, [_started(THIRD, 5)]), (12, [_done()]))
    session: list[list[Event]] = [
        [{"type": "session_started"}, {"type": "run_queued", "run": FIRST}, {"type": "run_begun", "run": FIRST}],
        [{"type": "run_queued", "run": SECOND}, {"type": "input_forwarded", "run": SECOND, "into": FIRST}],
        [{"type": "run_merged", "run": SECOND, "into": FIRST}],
        [{"type": "run_queued", "run": THIRD}],
        [{"type": "run_ended", "run": FIRST}],
        [{"type": "run_begun", "run": THIRD}],
        [{"type": "run_ended", "run": THIRD}],
    ]
    return Conversations(
        [first, second, third],
        [Execution(f"{FIRST}.1-1", 7, 105.5), Execution(f"{FIRST}.1-2", 7, 106.5)],
        session_of={FIRST: "s", SECOND: "s", THIRD: "s"},
        sessions={"s": [StoredRecord(n, "session", 100.0 + n, events) for n, events in enumerate(session, 1)]},
        decisions=[
            Decision(FIRST, PAUSE, "approve", "k1", 200),
            Decision(FIRST, PAUSE, "approve", "k1", 200),
            Decision(FIRST, PAUSE, "approve", "k1-again", 409, "pause_closed"),
        ],
        inputs=[Input(FIRST, "note", 200, 100.0), Input(FIRST, "too late", 202, 100.0)],
    )
