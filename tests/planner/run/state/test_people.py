"""What people add to a run, in its log: unread until the next request to the model, then in the history in order."""

from contracts.runs.events import InputAdded
from services.planner.run.commands import Ask
from services.planner.run.state.history import Added
from tests.planner.run_world import World, final, started


def add(world: World, *texts: str, redirect: bool = False) -> None:
    """Record inputs of people, each in a record of its own."""
    for text in texts:
        control = world.handling("INBOX:70", "resumed")
        world.write(control, [InputAdded(id=text, text=text, redirect=redirect)])


def texts(world: World) -> list[str]:
    """The inputs in the history, in their order."""
    return [item.added.text for item in world.run.history.items if isinstance(item, Added)]


def test_an_answer_with_an_unread_input_is_a_step_and_the_model_is_asked_again() -> None:
    """And the answer after it ends the run."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    moves = world.play(handling)
    assert isinstance(moves[-1], Ask)
    add(world, "one", "two")
    assert [added.text for added in world.run.inputs.unread] == ["one", "two"]
    handling.decision = final("first")
    moves = world.play(handling, final("second"))
    assert world.types().count("done") == 1
    assert (world.run.terminal and world.run.terminal.type, world.types()[-1]) == ("done", "done")
    answers = [event.answer for record in world.written for event in record if event.type == "step"]
    assert answers == ["first", None, None, None]
    assert world.written[-1][-1].raw_answer == "second"
