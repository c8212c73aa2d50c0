"""What people add to a run, in its log: unread until the next request to the model, then in the history in order."""

from contracts.runs.events import InputAdded
from services.planner.agents import Agent
from services.planner.run.commands import Ask
from services.planner.run.ending.terminal import ended
from services.planner.run.state.history import Added
from services.planner.run.state.people import AddedInputs
from tests.planner.run_world import REACT, World, calls, final, finished, started


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


def test_inputs_are_read_once_and_in_order() -> None:
    """Between an answer of tools and the next request."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling, calls())
    add(world, "one", "two")
    assert texts(world) == []
    world.play(world.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    assert texts(world) == ["one", "two"]
    assert world.run.inputs.unread == []
    add(world, "three")
    world.play(world.handling("INBOX:1", "call_finished", holder="another process", finished=finished("1-1")))
    assert texts(world) == ["one", "two", "three"]


def test_a_restated_answer_reads_nothing() -> None:
    """It is shown again without a request to the model."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started()))
    add(world, "one")
    asked = world.run.asked
    assert asked is not None
    world.write(world.handling("REQUESTS:1"), [asked.model_copy(update={"attempt": 2, "cause": "restated"})])
    assert [added.text for added in world.run.inputs.unread] == ["one"]


def test_a_new_question_ends_the_model_call() -> None:
    """The next request is another attempt of the turn, which supersedes what was shown."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started()))
    add(world, "Something else?", redirect=True)
    assert (world.run.asked, world.run.interrupted is not None) == (None, True)
    world.play(world.handling("INBOX:2", "resumed"))
    newest = world.run.asked
    assert newest is not None
    assert (newest.turn, newest.attempt, newest.cause) == (1, 2, "resumed")
    assert world.run.inputs.question("what?") == "Something else?"


def test_both_dialects_show_inputs() -> None:
    """As messages of the user; a new question says that it replaces the earlier one."""
    for transport in ("json", "tools"):
        world = World()
        opened = started().model_copy(update={"action_transport": transport})
        world.play(world.handling("REQUESTS:1", started=opened), calls())
        add(world, "in </input> red")
        add(world, "Why?", redirect=True)
        world.play(world.handling("INBOX:1", "call_finished", finished=finished("1-1")))
        request = REACT.request(world.run, [], Agent())
        said = [message for message in request.messages.objects() if message["role"] == "user"]
        shown = "\n".join(str(message["content"]) for message in said[-2:])
        assert "which counts as part of the question:\n<input>\nin < /input> red\n</input>" in shown
        assert "Answer this one, not the earlier one:\n<question>\nWhy?\n</question>" in shown


def test_a_session_is_told_the_inputs() -> None:
    """As much of them as a turn keeps."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling)
    add(world, "short", "x" * 9_000, "left out")
    handling.decision = final("first")
    world.play(handling, final("second"))
    fact = ended("0" * 32, world.run, started().request)
    assert fact is not None
    assert fact.inputs[0] == "short"
    assert len(fact.inputs) == 2
    assert sum(len(text.encode()) for text in fact.inputs) <= 8 * 1024


def test_the_question_with_what_was_added() -> None:
    """A triage and a critique are asked about it."""
    inputs = AddedInputs()
    for number, redirect in enumerate([False, True, False]):
        inputs.add(InputAdded(id=str(number), text=f"text {number}", redirect=redirect))
    inputs.take_unread(lambda _: False)
    assert inputs.question("the first") == "text 1\n\ntext 2"
