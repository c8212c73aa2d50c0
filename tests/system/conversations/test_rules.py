"""The rules find nothing in a sound storm, and each of them notices its own kind of wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.conversations.evidence import Conversations, Decision, Input
from tests.system.conversations.rules import RULES, judge
from tests.system.traces import Event, Evidence, Execution, RunEvidence, StoredRecord

#: A rule is trusted by those who change it; `make chaos` proves each with its mutants.
pytestmark = pytest.mark.chaos

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
        Evidence([first, second, third], [Execution(f"{FIRST}.1-1", 7, 105.5), Execution(f"{FIRST}.1-2", 7, 106.5)]),
        session_of={FIRST: "s", SECOND: "s", THIRD: "s"},
        sessions={"s": [StoredRecord(n, "session", 100.0 + n, events) for n, events in enumerate(session, 1)]},
        decisions=[
            Decision(FIRST, PAUSE, "approve", "k1", 200),
            Decision(FIRST, PAUSE, "approve", "k1", 200),
            Decision(FIRST, PAUSE, "approve", "k1-again", 409, "pause_closed"),
        ],
        inputs=[Input(FIRST, "note", 200)],
    )


def _events(found: Conversations, run: int, record: int) -> list[Event]:
    return found.of_runs.runs[run].records[record].events


def _second_begin(found: Conversations) -> None:
    found.sessions["s"][6].events.insert(0, {"type": "run_begun", "run": THIRD})


def _begin_too_early(found: Conversations) -> None:
    found.sessions["s"][3].events.append(found.sessions["s"][5].events.pop())


def _overlap(found: Conversations) -> None:
    found.of_runs.runs[2].records[0].sequence = 6


def _second_end(found: Conversations) -> None:
    _events(found, 2, 1).append(_done())


def _forgotten_turn(found: Conversations) -> None:
    _events(found, 2, 0)[0]["conversation_seq"] = 4


def _token_used_twice(found: Conversations) -> None:
    _events(found, 0, 5).append(copy.deepcopy(_events(found, 0, 4)[0]))


def _lost_pause(found: Conversations) -> None:
    _events(found, 0, 4).clear()


def _other_digest(found: Conversations) -> None:
    _events(found, 0, 4)[0]["digest"] = "x9"


def _too_early(found: Conversations) -> None:
    found.of_runs.executions[0].at = 104.0


def _no_answer(found: Conversations) -> None:
    _events(found, 0, 5)[0]["decision"] = "reject"


def _effect_twice(found: Conversations) -> None:
    found.of_runs.executions.append(found.of_runs.executions[0])


def _input_twice(found: Conversations) -> None:
    _events(found, 0, 6).append(copy.deepcopy(_events(found, 0, 3)[0]))


def _input_lost(found: Conversations) -> None:
    _events(found, 0, 3).clear()


def _input_elsewhere(found: Conversations) -> None:
    _events(found, 2, 0).append(_events(found, 0, 3).pop())


def _merged_elsewhere(found: Conversations) -> None:
    found.sessions["s"][2].events[0]["into"] = THIRD


def _merged_and_answered(found: Conversations) -> None:
    _events(found, 1, 1)[0]["route"] = None


def _text_in_two_runs(found: Conversations) -> None:
    _events(found, 2, 0).append(copy.deepcopy(_events(found, 0, 6)[0]))


def _two_decisions(found: Conversations) -> None:
    found.decisions[2].status = 200


def _other_answer(found: Conversations) -> None:
    found.decisions[1].status = 409


MUTANTS: dict[Callable[[Conversations], None], str] = {
    _second_begin: "one_run_has_the_turn",
    _begin_too_early: "one_run_has_the_turn",
    _overlap: "runs_do_not_overlap",
    _second_end: "ends_every_run",
    _forgotten_turn: "knows_what_was_said",
    _token_used_twice: "resumes_each_pause_once",
    _lost_pause: "resumes_each_pause_once",
    _other_digest: "guards_each_side_effect",
    _too_early: "guards_each_side_effect",
    _no_answer: "guards_each_side_effect",
    _effect_twice: "guards_each_side_effect",
    _input_twice: "takes_each_input_once",
    _input_lost: "takes_each_input_once",
    _input_elsewhere: "takes_each_input_once",
    _merged_elsewhere: "merges_into_one_run",
    _merged_and_answered: "merges_into_one_run",
    _text_in_two_runs: "merges_into_one_run",
    _two_decisions: "answers_each_decision_once",
    _other_answer: "answers_each_decision_once",
}


def test_nothing_is_found_in_a_sound_storm() -> None:
    """So that a complaint means something."""
    assert judge(sound()) == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_each_kind_of_wrong_is_noticed(mutant: Callable[[Conversations], None]) -> None:
    """By the rule that is meant for it."""
    found = sound()
    mutant(found)
    assert MUTANTS[mutant] in judge(found)


def test_every_rule_has_a_mutant() -> None:
    """A rule without one may notice nothing."""
    assert set(MUTANTS.values()) == set(RULES)
