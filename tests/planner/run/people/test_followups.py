"""After an answer: unread inputs are read, an agent with `followup: pause` asks its user, or the run ends."""

from contracts.runs.events import Done
from contracts.runs.pauses import token_of
from services.planner.run.people import pauses
from services.planner.run.turn.decision import Final
from tests.planner.run_world import World, started

QUESTION = Final(args={"answer": "Which one?\nThe red or the blue?", "requires_followup": True, "confidence": 0.5})


def asking(**limits: object) -> World:
    """A run whose agent waits for replies, with a request to the model in flight."""
    world = World()
    opened = started(**limits).model_copy(update={"followup": "pause"})
    world.play(world.handling("REQUESTS:1", started=opened))
    return world


def answer(world: World, decision: Final) -> None:
    handling = world.handling("REQUESTS:1", holder="h")
    handling.asked = True
    handling.decision = decision
    world.play(handling)


def test_an_answer_that_requires_a_followup_waits_for_the_user() -> None:
    """It is a step of the run; the pause repeats it."""
    world = asking()
    answer(world, QUESTION)
    assert world.types()[-3:] == ["step", "step", "paused"]
    (paused,) = world.run.pauses.values()
    assert (paused.reason, paused.source, paused.title) == ("input", "planner", "Which one?")
    assert paused.payload == {"answer": "Which one?\nThe red or the blue?"}
    assert paused.token == token_of(paused.pause_id or "", 1, paused.digest)
    assert world.run.waits_since is not None


def test_a_question_that_nobody_answers_ends_the_run_with_the_answer() -> None:
    """With all its fields."""
    world = asking()
    answer(world, QUESTION)
    (paused,) = world.run.pauses.values()
    end = pauses.end_after_rejection(world.run, paused, "")
    assert isinstance(end, Done)
    assert (end.raw_answer, end.requires_followup, end.confidence) == (QUESTION.args["answer"], True, 0.5)
    end = pauses.end_after_rejection(world.run, paused.model_copy(update={"state": {}}), "")
    assert isinstance(end, Done)
    assert (end.raw_answer, end.requires_followup) == (QUESTION.args["answer"], True)
