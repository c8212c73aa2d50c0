"""When a conversation is compacted over hundreds of steps: rarely, and with every step still in it."""

from contracts.runs.payload import Usage
from services.planner.agents import Agent
from services.planner.run.commands import Rules
from services.planner.run.turn.decision import Calls
from tests.planner.run_world import REACT, World, finished, started
from tests.support.model_server import words

STEPS = 300


def step(number: int) -> Calls:
    return Calls(node="work", calls=(("work", {"q": f"n{number} {words(60)}"}),), usage=Usage(model_calls=1))


def long_run(max_characters: int) -> World:
    """A run of hundreds of steps; each gives a long result."""
    world = World(Rules(strategy=REACT, max_characters=max_characters))
    world.play(world.handling("REQUESTS:1", started=started(max_steps=1000)), step(1))
    for number in range(1, STEPS):
        outcome = finished(f"{number}-1", observation={"text": f"found {number}: {words(60)}"})
        world.play(world.handling(f"INBOX:{number}", outcome), step(number + 1))
    return world


def test_a_long_run_is_compacted_now_and_then() -> None:
    """Not at every step, also where all lines are short already and the limit is still too low."""
    world = long_run(80_000)
    compactions = world.types().count("compacted")
    assert 2 <= compactions <= 12
    said = "\n".join(
        str(message["content"]) for message in REACT.request(world.run, [], Agent()).messages.objects()[1:]
    )
    assert all(
        f'"q":"n{number} ' in said and f'"call":"{number}-1","tool":"work","status":"succeeded"' in said
        for number in range(1, STEPS)
    )
