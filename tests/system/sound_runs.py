"""A session of three runs in which nothing went wrong."""

from typing import Any

from tests.system.traces import Evidence, Execution, OpenRun, RunEvidence, StoredRecord

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"
OTHER = "e" * 32
DIRECT = {"call_id": "1-1", "tool": "often", "direct": "a" * 32}


def _call(n: int) -> dict[str, Any]:
    return {"call_id": f"1-{n}", "tool": "once" if n == 1 else "often", "direct": "a" * 32 if n == 1 else None}


def sound() -> Evidence:
    """A run with a failed attempt, two calls and an answer in two chunks, and two others.

    Its client cancelled the second one. The third one has a direct call that was taken over, whose first planner has
    recorded the start afterwards, and an answer that is stored with its end.
    """
    chunk = {"type": "chunk", "action_seq": 2, "done": False}
    log: list[tuple[int, str, list[dict[str, Any]]]] = [
        (1, "log", [{"type": "run_started"}, {"type": "asked", "turn": 1, "attempt": 1}]),
        (2, "log", [{"type": "step", "step": 1, "status": "started", "attempt": 1, "calls": [_call(1), _call(2)]}]),
        (3, "log", [{"type": "observed", "call_id": "1-2", "status": "succeeded"}]),
        (
            4,
            "log",
            [
                {"type": "observed", "call_id": "1-1", "status": "succeeded"},
                {"type": "step", "step": 1, "status": "succeeded", "attempt": None},
                {"type": "asked", "turn": 2, "attempt": 1},
            ],
        ),
        (5, "stream", [{**chunk, "attempt": 1, "seq": 0, "offset": 0, "text": "4"}]),
        (
            6,
            "log",
            [
                {"type": "model_failed", "turn": 2, "attempt": 1, "next_model": "spare", "retry_at": 105_500},
                {"type": "asked", "turn": 2, "attempt": 2, "cause": "provider", "model": "spare"},
            ],
        ),
        (7, "stream", [{**chunk, "attempt": 2, "seq": 0, "offset": 0, "text": "4"}]),
        (8, "stream", [{**chunk, "attempt": 2, "seq": 1, "offset": 1, "text": "2", "done": True}]),
        (
            9,
            "log",
            [
                {"type": "step", "step": 2, "status": "started", "attempt": 2, "calls": []},
                {"type": "done", "reason": "answer_complete", "raw_answer": "42", "last_stream_seq": 8},
            ],
        ),
    ]
    records = [StoredRecord(sequence, kind, 100.0 + sequence, events) for sequence, kind, events in log]
    seen = [("", event) for record in records for event in record.events]
    stopped = RunEvidence(
        "f" * 32,
        cancelled_by_client=True,
        records=[StoredRecord(20, "log", 120.0, [{"type": "run_started"}, {"type": "cancelled"}])],
        seen=[("", {"type": "run_started"}), ("", {"type": "cancelled"})],
        in_index="cancelled",
    )
    chunk = {"type": "chunk", "action_seq": 2, "attempt": 1, "seq": 0, "offset": 0, "text": "5", "done": True}
    log = [
        (30, "log", [{"type": "run_started"}, {"type": "asked", "turn": 1, "attempt": 1}]),
        (31, "log", [{"type": "step", "step": 1, "status": "started", "attempt": 1, "calls": [DIRECT]}]),
        (32, "log", [{"type": "called", "step": 1, "calls": [{**DIRECT, "direct": None}]}]),
        (33, "stream", [{"type": "call_started", "call_id": "1-1", "tool": "often"}]),
        (
            34,
            "log",
            [
                {"type": "observed", "call_id": "1-1", "status": "succeeded"},
                {"type": "asked", "turn": 2, "attempt": 1},
            ],
        ),
        (
            35,
            "log",
            [
                chunk,
                {"type": "step", "step": 2, "status": "started", "attempt": 1, "calls": []},
                {"type": "done", "reason": "answer_complete", "raw_answer": "5"},
            ],
        ),
    ]
    taken_over = RunEvidence(
        OTHER,
        records=[StoredRecord(sequence, kind, 100.0 + sequence, events) for sequence, kind, events in log],
        in_index="done",
    )
    taken_over.seen = [("", event) for record in taken_over.records for event in record.events]
    executions = [
        Execution(f"{OTHER}.1-1", 7, 131.1),
        Execution(f"{RUN}.1-1", 7, 102.1),
        Execution(f"{RUN}.1-2", 7, 102.1),
        Execution(f"{RUN}.1-2", 8, 102.5),
    ]
    return Evidence(
        [RunEvidence(RUN, records=records, seen=seen, in_index="done"), stopped, taken_over],
        executions,
        {"once": False, "often": True},
        {"INBOX": 0},
        open_runs=[OpenRun(RUN, is_in_index=True, has_timer=True)],
        blows=[90.0],
    )
