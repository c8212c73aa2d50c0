"""Pauses that wait for people: what a decision, a timer or a tool makes of them."""

from typing import Any

import pytest

from contracts.runs.events import Done, Observed, Paused, Resumed
from contracts.runs.inbox import ResumeRequested
from contracts.runs.pauses import ApprovalRule, OpenPause, TasksPaused
from contracts.sessions.records import SessionRunWaits
from services.planner.run.commands import Ack, Answer, Append, NotifySession, Wake
from services.planner.run.people import pauses
from services.planner.run.turn.decision import Final
from tests.planner.run.pause_world import DAY_MS, PauseWorld, answers, opening, plan, sent, timers
from tests.planner.run_world import World, started

WEEK_MS = 7 * DAY_MS


def waiting(*tools: str, rules: tuple[ApprovalRule, ...] = (), **fields: Any) -> PauseWorld:
    """A run that has decided to call these tools."""
    world = PauseWorld()
    world.begin(opening(*rules, **fields), plan(*tools))
    return world


def test_an_approved_call_is_sent_by_the_message_that_goes_on() -> None:
    """The decision itself calls nothing: it is recorded, answered, and wakes the run."""
    world = PauseWorld()
    moves = world.begin(opening(), plan("pay", "work"))
    [pause] = world.pauses
    assert sent(moves) == ["1-2"]
    assert ("pause", 2000 + WEEK_MS) in timers(moves)
    decided = world.decide(pause, "approve")
    assert [type(move) for move in decided if not isinstance(move, Append)][-2:] == [Wake, Ack]
    assert (answers(decided), sent(decided), world.pauses) == ([None], [], [])
    assert sent(world.wake()) == ["1-1"]
    assert world.run.pause_decisions.approved["1-1"].digest == pause.digest


def test_the_deadline_stands_still_while_the_run_only_waits() -> None:
    """Its timer changes nothing then. The decision moves it, by the time that the run has waited."""
    world = waiting("pay", deadline_s=60)
    assert world.fire("deadline", 61_000)[-1:] == [Ack()]
    assert world.types()[-1] == "paused"
    world.now = 2000 + DAY_MS
    assert ("deadline", 61_000 + DAY_MS) in timers(world.decide(world.pauses[0], "approve"))
    assert world.run.deadline_at == 61_000 + DAY_MS
    assert sent(world.wake()) == ["1-1"]


def test_what_nobody_decides_is_rejected() -> None:
    """By the timer, which then wakes the run. The next expiry gets the timer of the name."""
    rule = ApprovalRule(name="soon", tools=["work"], expires_in_s=10)
    world = waiting("work", "pay", rules=(rule,))
    moves = world.fire("pause", 12_000)
    written = [event for move in moves if isinstance(move, Append) for event in move.events]
    assert [(event.by, event.decision) for event in written if isinstance(event, Resumed)] == [("timer", "reject")]
    assert [event.failure.code for event in written if isinstance(event, Observed) and event.failure] == [
        "approval_expired"
    ]
    assert ("pause", 2000 + WEEK_MS) in timers(moves)
    assert Wake() in moves
    assert [pause.tool for pause in world.pauses] == ["pay"]


def test_a_decision_at_the_moment_of_expiry_comes_too_late() -> None:
    """Whichever record comes first: the default takes effect once."""
    world = waiting("pay")
    [pause] = world.pauses
    world.now = pause.until
    assert answers(world.decide(pause, "approve")) == ["pause_closed"]
    assert world.types()[-2:] == ["resumed", "observed"]
    assert world.fire("pause", pause.until)[-1:] == [Ack()]
    assert world.types().count("resumed") == 1


def test_a_decision_with_a_known_id_takes_effect_once() -> None:
    """It gets the first answer, from any handling; with another body it is a conflict."""
    world = waiting("pay", "pay")
    first, second = world.pauses
    attempt_ = world.next_handling(
        ResumeRequested(id="r", pause_id=first.pause_id or "", token=first.token, decision="approve"),
    )
    world.handle(attempt_)
    again = world.handle(attempt_.again("second"))
    assert [(move.code, move.is_repeated) for move in again if isinstance(move, Answer)] == [(None, True)]
    assert Wake() in again
    assert answers(world.decide(second, "approve", "r", request_sha256="other")) == ["idempotency_conflict"]
    assert answers(world.decide(first, "approve")) == ["pause_closed"]
    assert world.types().count("resumed") == 1


@pytest.mark.parametrize(("run_id", "code"), [("", "pause_closed"), ("f" * 32, "not_found")])
def test_a_pause_about_results_that_were_applied_elsewhere_is_over(run_id: str, code: str) -> None:
    """Who was shown it is not told that it never was. One of a task's run is decided there."""
    world = waiting("work")
    assert world.run.started is not None
    shown = OpenPause.model_validate(
        {
            "pause_id": "e" * 32,
            "run_id": run_id or world.run.started.run_id,
            "reason": "confirmation",
            "source": "planner",
            "token": "t",
            "expires_at": DAY_MS,
        }
    )
    for seq, waiting_now in ((5, [shown]), (6, [])):
        world.write(world.next_handling("tasks_paused"), [TasksPaused(call_id="1-1", seq=seq, pauses=waiting_now)])
    held = Paused(**shown.model_dump(include={"pause_id", "reason", "source", "token"}), until=DAY_MS)
    assert answers(world.decide(held, "approve")) == [code]


@pytest.mark.parametrize(
    ("changes", "decision", "fields", "code"),
    [
        ({"pause_id": "0" * 32}, "approve", {}, "not_found"),
        ({"token": "x"}, "approve", {}, "pause_changed"),
        ({}, "answer", {"input": 1}, "invalid_decision"),
        ({}, "edit", {}, "invalid_input"),
        ({}, "edit", {"args": {"n": "no"}}, "invalid_input"),
    ],
)
def test_a_decision_that_is_not_possible_changes_nothing(
    changes: dict[str, Any], decision: str, fields: dict[str, Any], code: str
) -> None:
    """The pause stays, and the answer says why."""
    world = waiting("pay")
    moves = world.decide(world.pauses[0].model_copy(update=changes), decision, **fields)
    assert answers(moves) == [code]
    assert (len(world.pauses), world.types()[-1], Wake() in moves) == (1, "paused", False)


def test_a_tool_pauses_its_call_several_times() -> None:
    """Each pause ends a round; the next one carries all answers and the newest state."""
    world = waiting("work")
    world.pause_call("1-1", state={"step": 1}, input_schema={"type": "string"})
    assert answers(world.decide(world.pauses[0], "answer", input=5)) == ["invalid_input"]
    assert answers(world.decide(world.pauses[0], "approve")) == ["invalid_decision"]
    world.decide(world.pauses[0], "answer", input="yes")
    assert sent(world.wake()) == ["1-1"]
    assert world.run.open["1-1"].round == 1
    world.pause_call("1-1", 1, state={"step": 2})
    world.decide(world.pauses[0], "reject", note="stop")
    assert sent(world.wake()) == ["1-1"]
    decisions = world.run.pause_decisions
    assert [(each.number, each.decision, each.input) for each in decisions.answers["1-1"]] == [
        (0, "answer", "yes"),
        (1, "reject", None),
    ]
    assert (decisions.states["1-1"], world.run.open["1-1"].round) == ({"step": 2}, 2)


def test_the_session_is_told_what_the_run_waits_for() -> None:
    """Once for each record that changes it, without what only a person needs to see."""
    world = PauseWorld()
    moves = world.begin(opening(session_id="s"), plan("pay"))
    [waits] = [move.message for move in moves if isinstance(move, NotifySession)]
    assert isinstance(waits, SessionRunWaits)
    assert waits.waits.waits
    assert [(pause.tool, pause.arguments) for pause in waits.waits.pauses] == [("pay", None)]
    decided = world.decide(world.pauses[0], "approve")
    [works] = [move.message for move in decided if isinstance(move, NotifySession)]
    assert isinstance(works, SessionRunWaits)
    assert (works.waits.waits, works.waits.pauses) == (False, [])
    assert works.waits.seq > waits.waits.seq


QUESTION = Final(args={"answer": "Which one?\nThe red or the blue?", "requires_followup": True, "confidence": 0.5})


def test_a_question_that_nobody_answers_ends_the_run_with_the_answer() -> None:
    """With all its fields."""
    world = World()
    opened = started().model_copy(update={"followup": "pause"})
    world.play(world.handling("REQUESTS:1", started=opened), QUESTION)
    (paused,) = world.run.pauses.values()
    end = pauses.end_after_rejection(world.run, paused, "")
    assert isinstance(end, Done)
    assert (end.raw_answer, end.requires_followup, end.confidence) == (QUESTION.args["answer"], True, 0.5)
    end = pauses.end_after_rejection(world.run, paused.model_copy(update={"state": {}}), "")
    assert isinstance(end, Done)
    assert (end.raw_answer, end.requires_followup) == (QUESTION.args["answer"], True)
