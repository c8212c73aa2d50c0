"""After an answer: unread inputs are read, an agent with `followup: pause` asks its user, or the run ends."""

from contracts.runs.events import Done
from services.planner.run.people import pauses
from services.planner.run.turn.decision import Final
from tests.planner.run_world import World, started

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
