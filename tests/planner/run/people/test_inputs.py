"""What people add to a run: taken once, refused with a code, or a decision about what waits. Then random orders."""

from collections.abc import Sequence
from typing import Any

import pytest

from contracts.runs.events import Done, Error, InputAdded, Paused, Resumed
from contracts.runs.inbox import InputRequested, ResumeRequested, TimerFired
from contracts.runs.pauses import MAX_UNREAD_INPUTS
from contracts.sessions.records import SessionInputTaken
from services.planner.run.commands import Ack, Answer, NotifySession, Wake
from services.planner.run.people.input_rules import Checked, InputRule, input_refused
from services.planner.run.turn.decision import Decision
from tests.planner.run_world import Storm, World, calls, final, finished, started
from tests.support.samples import seeds

OTHER = "0192f0c1a2b37c4d8e5f60718293ffff"


def add(world: World, text: str = "more", *, checked: Checked | None = None, **fields: Any) -> Sequence[object]:
    """Deliver an input, and return the effects."""
    message = InputRequested.model_validate({"id": text, "text": text, **fields})
    handling = world.handling(f"INBOX:{text}", message)
    if checked is not None:
        handling.checked = checked
    return world.play(handling)


def answers(moves: Sequence[object]) -> list[Answer]:
    return [move for move in moves if isinstance(move, Answer)]


def asking(**fields: Any) -> World:
    """The model is being asked."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started().model_copy(update=fields)))
    return world


def waiting(*pauses: Paused) -> World:
    """A run that does nothing but wait: each pause holds one of its calls."""
    world = World()
    world.play(world.handling("REQUESTS:1", started=started()), calls(len(pauses)))
    held = [paused.model_copy(update={"call_id": f"1-{n}", "tool": "work"}) for n, paused in enumerate(pauses, 1)]
    world.write(world.handling("INBOX:2"), held)
    assert world.run.waits_since is not None
    return world


def approval(**fields: Any) -> Paused:
    """A call waits for an approval."""
    return Paused(reason="approval", source="policy", until=10**13, spec="d" * 24, digest="x", **fields)


def question(schema: dict[str, Any] | None, **fields: Any) -> Paused:
    """A tool waits for an answer."""
    return Paused(reason="input", source="tool", until=10**13, input_schema=schema, **fields)


def test_an_input_counts_once() -> None:
    """However often it arrives; the second answer says so."""
    world = asking()
    assert answers(add(world)) == [Answer("more")]
    assert answers(add(world)) == [Answer("more", is_repeated=True)]
    assert world.types().count("input_added") == 1


def test_at_most_64_are_unread() -> None:
    """The next one is refused; once the model has read them there is room again.

    It is the same with texts of other runs: each of these runs waits for its turn then.
    """
    world = asking()
    for number in range(MAX_UNREAD_INPUTS):
        add(world, f"text {number}")
    (answer,) = answers(add(world, "one too many"))
    assert answer.code == "too_many_inputs"
    moves = add(world, "of a run", run=OTHER)
    assert [answer.code for answer in answers(moves)] == ["too_many_inputs"]
    notified = [move.message for move in moves if isinstance(move, NotifySession)]
    assert notified == [SessionInputTaken(run=OTHER, into=started().run_id, taken=False)]
    handling = world.handling("REQUESTS:1", holder="second")
    world.play(handling)
    assert answers(add(world, "again")) == [Answer("again")]


TEXT = {"type": "string"}
ONE_FIELD = {"type": "object", "required": ["city"], "properties": {"city": TEXT, "note": TEXT}}


@pytest.mark.parametrize(("schema", "given"), [(TEXT, "Bonn"), (None, "Bonn"), (ONE_FIELD, {"city": "Bonn"})])
def test_a_text_answers_the_pause_that_takes_it(schema: dict[str, Any] | None, given: object) -> None:
    """Only the oldest one; it is no input of the run besides."""
    world = waiting(question({"type": "integer"}, pause_id="a"), question(schema, pause_id="b"), approval(pause_id="c"))
    moves = add(world, "Bonn", by="key")
    (resumed,) = world.written[-1]
    assert isinstance(resumed, Resumed)
    assert (resumed.pause_id, resumed.decision, resumed.input, resumed.by) == ("b", "answer", given, "key")
    assert any(isinstance(move, Wake) for move in moves)
    assert answers(moves) == [Answer("Bonn")]
    assert answers(add(world, "Bonn")) == [Answer("Bonn", is_repeated=True)]


def test_rules_refuse_a_text_or_ask_a_person() -> None:
    """A refused text is not recorded. A text that a person must admit is read only then."""
    world = asking()
    (answer,) = answers(add(world, "4111", checked=Checked(input_refused("cards"))))
    assert (answer.code, answer.reason) == ("input_refused", "the rule cards does not admit this text")
    rule = InputRule(name="lawyer", text="lawyer", action="pause")
    add(world, "my lawyer", checked=Checked(rule=rule, text="my lawyer"))
    added, paused = world.written[-1]
    assert isinstance(added, InputAdded)
    assert (paused.source, paused.rule, paused.payload) == ("policy", "lawyer", {"text": "my lawyer"})
    handling = world.handling("REQUESTS:1", holder="h")
    handling.asked, handling.decision = True, final("early")
    world.play(handling)
    assert world.types()[-2:] == ["step", "step"]
    assert world.play(world.handling("INBOX:2", "resumed"))[-1] == Ack()
    assert world.types()[-1] == "step"


@pytest.mark.parametrize("fate", ["call", "crash"])
def test_the_model_never_reads_a_text_that_nobody_has_admitted(fate: str) -> None:
    """Nor what came after it: not when a call ends, nor when another planner asks again."""
    world = asking()
    if fate == "call":
        world.play(world.handling("REQUESTS:1", holder="h"), calls(1))
    add(world, "before")
    add(world, "my lawyer", checked=Checked(rule=InputRule(name="lawyer", text="lawyer", action="pause")))
    add(world, "after")
    if fate == "call":
        world.play(world.handling("INBOX:1-1", finished("1-1")))
        assert [world.types()[-1], world.run.asked] == ["step", None]
    else:
        world.play(world.handling("REQUESTS:1", holder="second"))
        assert [added.text for added in world.run.inputs.read] == ["before"]
    assert [added.text for added in world.run.inputs.unread][-2:] == ["my lawyer", "after"]
    decide(world, "approve")
    world.play(world.handling("INBOX:10", "resumed"), final("early"), final())
    world.play(world.handling("REQUESTS:1", holder="third"), final("early"), final())
    assert [added.text for added in world.run.inputs.read] == ["before", "my lawyer", "after"]


def decide(world: World, decision: str) -> None:
    """A person decides about the one pause."""
    (paused,) = world.run.pauses.values()
    given = ResumeRequested.model_validate(
        {"id": "d", "pause_id": paused.pause_id, "token": paused.token, "decision": decision, "note": "no"}
    )
    world.play(world.handling("INBOX:9", given))


class Steering(Storm):
    """One run, inputs of three senders, planners that die, in a random order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, started(max_steps=60))
        self.sent: list[str] = []

    def reply(self, turn: int) -> Decision:
        return final() if turn > 3 or self.rng.random() < 0.5 else calls(self.rng.randint(1, 2))

    def set_timer(self, _: TimerFired) -> None:
        """None fires."""

    def outside(self) -> None:
        if len(self.sent) < 8 and self.world.run.started is not None and self.rng.random() < 0.1:
            text = f"sender {self.rng.randrange(3)}, text {len(self.sent)}"
            self.sent.append(text)
            self.deliver(f"INBOX:{text}", InputRequested(id=text, text=text, redirect=self.rng.random() < 0.3))


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", seeds(200))
def test_every_input_is_in_one_place_and_read_once_in_order(seed: int) -> None:
    """No run ends while one is unread, and one that comes after the end is refused."""
    storm = Steering(seed)
    world = storm.world
    for _ in range(5_000):
        before = len(world.written)
        unread = [*world.run.inputs.unread]
        read = [*world.run.inputs.read]
        storm.step()
        if len(world.written) > before and world.run.terminal is None:
            new = [event for event in world.written[-1] if isinstance(event, InputAdded)]
            assert world.run.inputs.read + world.run.inputs.unread == read + unread + new
        if world.run.terminal is not None:
            break
    end = world.run.terminal
    assert isinstance(end, Done) or (isinstance(end, Error) and end.code == "too_many_attempts")
    assert world.run.inputs.unread == [] or isinstance(end, Error)
    recorded = [added.id for added in world.of(InputAdded)]
    assert [added.id for added in [*world.run.inputs.read, *world.run.inputs.unread]] == recorded
    assert len(set(recorded)) == len(recorded)
    assert set(recorded) <= set(storm.sent)
