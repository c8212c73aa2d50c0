"""The checker finds nothing in a sound session, and each of its rules notices its own kind of wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.checker import RULES, judge
from tests.system.session_rules import SESSION_RULES
from tests.system.traces import Evidence, Execution, OpenRun, RunEvidence, StoredRecord

#: A rule is trusted by those who change it; `make chaos` proves each with its mutants.
pytestmark = pytest.mark.chaos

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"
OTHER = "e" * 32
DIRECT = {"call_id": "1-1", "tool": "often", "direct": "a" * 32}


def _call(n: int) -> dict[str, Any]:
    return {"call_id": f"1-{n}", "tool": "once" if n == 1 else "often", "direct": "a" * 32 if n == 1 else None}


def sound() -> Evidence:
    """A run with a failed attempt, two calls and an answer in two chunks, and two others.

    Its client cancelled the second one. The third one has a direct call that was taken over, and an answer that is
    stored with its end.
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
        (5, "stream", [{**chunk, "attempt": 1, "seq": 0, "text": "4"}]),
        (
            6,
            "log",
            [
                {"type": "model_failed", "turn": 2, "attempt": 1, "next_model": "spare", "retry_at": 105_500},
                {"type": "asked", "turn": 2, "attempt": 2, "cause": "provider", "model": "spare"},
            ],
        ),
        (7, "stream", [{**chunk, "attempt": 2, "seq": 0, "text": "4"}]),
        (8, "stream", [{**chunk, "attempt": 2, "seq": 1, "text": "2", "done": True}]),
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
    chunk = {"type": "chunk", "action_seq": 2, "attempt": 1, "seq": 0, "text": "5", "done": True}
    log = [
        (30, "log", [{"type": "run_started"}, {"type": "asked", "turn": 1, "attempt": 1}]),
        (31, "log", [{"type": "step", "step": 1, "status": "started", "attempt": 1, "calls": [DIRECT]}]),
        (32, "stream", [{"type": "call_started", "call_id": "1-1", "tool": "often"}]),
        (33, "log", [{"type": "called", "step": 1, "calls": [{**DIRECT, "direct": None}]}]),
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


def _events(evidence: Evidence, sequence: int) -> list[dict[str, Any]]:
    return next(record.events for record in evidence.runs[0].records if record.sequence == sequence)


def _end_twice(e: Evidence) -> None:
    _events(e, 9).append({"type": "cancelled"})


def _never_end(e: Evidence) -> None:
    _events(e, 9).pop()


def _write_after_the_end(e: Evidence) -> None:
    e.runs[0].records.append(StoredRecord(10, "log", 111.0, [{"type": "asked", "turn": 3, "attempt": 1}]))


def _cancel_by_nobody(e: Evidence) -> None:
    e.runs[1].cancelled_by_client = False


def _fail_for_no_reason(e: Evidence) -> None:
    _events(e, 9)[-1] = {"type": "error", "code": "internal", "error": "x"}


def _settle_twice(e: Evidence) -> None:
    _events(e, 4).append({"type": "observed", "call_id": "1-2", "status": "succeeded"})


def _leave_a_call_open(e: Evidence) -> None:
    _events(e, 3).clear()


def _settle_the_unplanned(e: Evidence) -> None:
    _events(e, 3).append({"type": "observed", "call_id": "7-7", "status": "succeeded"})


def _lose_a_chunk(e: Evidence) -> None:
    _events(e, 7).clear()


def _repeat_a_chunk(e: Evidence) -> None:
    e.runs[0].records.append(StoredRecord(8, "stream", 108.0, [dict(_events(e, 7)[0])]))


def _alter_the_answer(e: Evidence) -> None:
    _events(e, 9)[-1]["raw_answer"] = "43"


def _force_an_end_that_is_not_shown(e: Evidence) -> None:
    _events(e, 9)[-1].update(reason="budget_exhausted", raw_answer="as far as it came")


def _leave_the_stream_open(e: Evidence) -> None:
    _events(e, 8)[0]["done"] = False


def _lose_the_last_words(e: Evidence) -> None:
    del e.runs[2].records[-1].events[0]


def _name_an_older_chunk(e: Evidence) -> None:
    _events(e, 9)[-1]["last_stream_seq"] = 7


def _name_what_is_not_stored(e: Evidence) -> None:
    _events(e, 9)[-1]["last_stream_seq"] = 10


def _store_a_dead_chunk(e: Evidence) -> None:
    e.runs[0].records[4].sequence, e.runs[0].records[5].sequence = 6, 5


def _store_a_late_chunk(e: Evidence) -> None:
    e.runs[0].records.append(
        StoredRecord(
            11, "stream", 112.0, [{"type": "chunk", "action_seq": 2, "attempt": 2, "seq": 2, "text": "", "done": True}]
        )
    )


def _skip_an_attempt(e: Evidence) -> None:
    _events(e, 6)[1]["attempt"] = 3


def _retry_too_early(e: Evidence) -> None:
    _events(e, 6)[0]["retry_at"] = 106_500


def _retry_another_model(e: Evidence) -> None:
    _events(e, 6)[1]["model"] = "main"


def _fail_unasked(e: Evidence) -> None:
    _events(e, 6).insert(1, dict(_events(e, 6)[0]))


def _decide_by_the_dead(e: Evidence) -> None:
    _events(e, 9)[0]["attempt"] = 1


def _hide_an_event(e: Evidence) -> None:
    del e.runs[0].seen[3]


def _show_an_event_twice(e: Evidence) -> None:
    e.runs[0].seen.insert(4, e.runs[0].seen[4])


def _show_out_of_order(e: Evidence) -> None:
    seen = e.runs[0].seen
    seen[6], seen[7] = seen[7], seen[6]


def _repeat_a_side_effect(e: Evidence) -> None:
    e.executions.append(Execution(f"{RUN}.1-1", 9, 102.3))


def _repeat_a_settled_call(e: Evidence) -> None:
    e.executions.append(Execution(f"{RUN}.1-2", 9, 104.2))


def _invent_a_result(e: Evidence) -> None:
    del e.executions[0]


def _execute_after_the_end(e: Evidence) -> None:
    e.executions.append(Execution(f"{RUN}.1-2", 9, e.runs[0].records[-1].at + 1.2))


def _execute_the_unplanned(e: Evidence) -> None:
    e.executions.append(Execution(f"{RUN}.8-8", 9, 102.0))


def _lose_the_entry(e: Evidence) -> None:
    e.runs[0].in_index = ""


def _leave_the_entry_open(e: Evidence) -> None:
    e.runs[1].in_index = "running"


def _leave_a_timer(e: Evidence) -> None:
    e.runs[0].timers = 1


def _start_what_was_not_direct(e: Evidence) -> None:
    e.runs[2].records[1].events[0]["calls"] = [{**DIRECT, "direct": None}]


def _start_the_unannounced(e: Evidence) -> None:
    e.runs[2].records[2].events[0]["call_id"] = "9-9"


def _start_before_the_announcement(e: Evidence) -> None:
    e.runs[2].records[2].sequence = 30


def _take_over_too_early(e: Evidence) -> None:
    e.runs[2].records[2].at = 131.5


def _acknowledge_before_the_entry(e: Evidence) -> None:
    e.open_runs[0].is_in_index = False


def _acknowledge_before_the_timer(e: Evidence) -> None:
    e.open_runs[0].has_timer = False


def _settle_a_direct_call_twice(e: Evidence) -> None:
    e.runs[2].records[4].events.append({"type": "observed", "call_id": "1-1", "status": "failed"})


def _lose_a_direct_call(e: Evidence) -> None:
    del e.runs[2].records[4].events[0]


def _store_a_direct_call_that_was_made(e: Evidence) -> None:
    e.executions.append(Execution(f"{RUN}.1-1", 8, 103.9))


def _begin_a_direct_call_late(e: Evidence) -> None:
    e.executions.append(Execution(f"{OTHER}.1-1", 9, 134.2))


def _leave_a_message(e: Evidence) -> None:
    e.left["INBOX"] = 1


def _hang(e: Evidence) -> None:
    e.hung.append(RUN)


def _dead_letter(e: Evidence) -> None:
    e.dead_letters.append("inbox: not JSON")


def _crash(e: Evidence) -> None:
    e.crashed.append("planner-1: Traceback")


MUTANTS: dict[str, list[Callable[[Evidence], None]]] = {
    "ends_exactly_once": [_end_twice, _never_end, _write_after_the_end],
    "ends_done": [_cancel_by_nobody, _fail_for_no_reason],
    "settles_each_call_once": [
        _settle_twice,
        _leave_a_call_open,
        _settle_the_unplanned,
        _settle_a_direct_call_twice,
        _lose_a_direct_call,
    ],
    "streams_the_answer": [
        _lose_a_chunk,
        _lose_the_last_words,
        _repeat_a_chunk,
        _alter_the_answer,
        _leave_the_stream_open,
        _force_an_end_that_is_not_shown,
    ],
    "stores_nothing_of_the_dead": [_store_a_dead_chunk, _store_a_late_chunk],
    "names_the_last_chunk": [_name_an_older_chunk, _name_what_is_not_stored],
    "asks_in_order": [_skip_an_attempt, _decide_by_the_dead],
    "retries_when_the_wait_is_over": [_retry_too_early, _retry_another_model, _fail_unasked],
    "shows_what_is_stored": [_hide_an_event, _show_an_event_twice, _show_out_of_order],
    "executes_once": [
        _repeat_a_side_effect,
        _repeat_a_settled_call,
        _invent_a_result,
        _execute_after_the_end,
        _execute_the_unplanned,
        _store_a_direct_call_that_was_made,
        _begin_a_direct_call_late,
    ],
    "records_starts_for_a_reason": [
        _start_what_was_not_direct,
        _start_the_unannounced,
        _start_before_the_announcement,
        _take_over_too_early,
    ],
    "is_closed_for_others": [_lose_the_entry, _leave_the_entry_open, _leave_a_timer],
    "opens_for_others": [_acknowledge_before_the_entry, _acknowledge_before_the_timer],
    "leaves_nothing": [_leave_a_message],
    "hangs_nowhere": [_hang],
    "dead_letters_nothing": [_dead_letter],
    "crashes_nowhere": [_crash],
}


def test_a_sound_session_passes() -> None:
    """No rule complains of a session in which nothing went wrong."""
    assert judge(sound()) == {}


def test_a_forced_end_brings_its_own_chunk() -> None:
    """Newer than what was shown of the answer that did not come to its end."""
    forced = sound()
    _force_an_end_that_is_not_shown(forced)
    text = _events(forced, 9)[-1]["raw_answer"]
    _events(forced, 9).insert(
        -1, {"type": "chunk", "action_seq": 3, "attempt": 1, "seq": 0, "text": text, "done": True}
    )
    forced.runs[0].may_fail = True
    forced.runs[0].seen = [("", event) for record in forced.runs[0].records for event in record.events]
    assert judge(forced) == {}


@pytest.mark.parametrize(
    ("rule", "mutant"),
    [(rule, mutant) for rule, mutants in MUTANTS.items() for mutant in mutants],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_each_rule_notices_its_mutants(rule: str, mutant: Callable[[Evidence], None]) -> None:
    """One altered record is enough for the rule that forbids it."""
    altered = copy.deepcopy(sound())
    mutant(altered)
    assert rule in judge(altered)


def test_every_rule_has_a_mutant() -> None:
    """A rule that nothing can break is no rule."""
    assert set(MUTANTS) == {*RULES, *SESSION_RULES}
