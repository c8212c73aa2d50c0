"""The record after a model call: the last words of its reply first, and at its end the stream's last sequence."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Chunk, Thinking
from services.planner.run.commands import Ack
from services.planner.run.turn.decision import Decision
from tests.planner.handlings import Attempt
from tests.planner.run_world import World, calls, final, started

WORDS = Chunk(seq=1, text="ne", done=True, action_seq=1, attempt=1)
THOUGHT = Thinking(seq=3, text="", done=True, action_seq=1, attempt=1)


def asked(world: World, owner: str = "REQUESTS:1", holder: str = "h") -> Attempt:
    """A handling whose model call is in flight."""
    handling = world.handling(owner, holder=holder, started=started())
    world.play(handling)
    return handling


def last(world: World) -> Any:
    """The newest event."""
    return world.written[-1][-1]


@pytest.mark.parametrize(
    ("decision", "kinds"),
    [
        (final(), ["thinking", "chunk", "step", "step", "done"]),
        (calls(), ["thinking", "chunk", "step"]),
    ],
)
def test_the_last_words_stand_before_the_decision_in_its_record(decision: Decision, kinds: list[str]) -> None:
    """One record; the words are not appended again with the next one."""
    world = World()
    world.play(asked(world), replace(decision, last_words=(THOUGHT, WORDS), stream_seq=7))
    assert [event.type for event in world.written[1]] == kinds
    assert sum(event.type == "chunk" for events in world.written for event in events) == 1


@pytest.mark.parametrize("kind", ["cancel", "timer"])
def test_words_of_a_superseded_call_are_not_appended(kind: str) -> None:
    """A cancel or a deadline came first: the run ends with what was shown until then."""
    world = World()
    handling = asked(world)
    handling.decision = replace(final(), last_words=(WORDS,), stream_seq=7)
    world.play(world.handling("INBOX:1", kind, "other", 70_000))
    texts = [event.text for events in world.written for event in events if isinstance(event, Chunk)]
    assert WORDS.text not in texts
    assert isinstance(world.play(handling)[-1], Ack)
    assert world.types().count("chunk") == len(texts)


@pytest.mark.parametrize(("stored", "expected"), [(7, 7), (0, 0)])
def test_an_end_says_up_to_where_the_stream_goes(stored: int, expected: int) -> None:
    """The chunks of the answer are the newest records, and a first turn without any leaves the stream empty."""
    world = World()
    world.play(asked(world), replace(final(), stream_seq=stored))
    assert last(world).last_stream_seq == expected
