"""The answer of the strategy `planned`, as it is streamed and as it is read."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.models.types import Reply
from services.planner.run.turn.decision import Final
from services.planner.strategies.planned.reading import AnswerReading

MAX_SECONDS = 5.0
"""Far above what it takes."""


@given(cuts=st.lists(st.integers(0, 60), max_size=20))
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a > b, <b>so</b> </thin</think>\n <THOUGHT></THOUGHT>\nDone <think>.", "Done <think>."),
        ("\n <thin air>", " <thin air>"),
        ("<think>never closed > ", ""),
        ('<think>{"</think>{"type": "direct_response", "content": "Hi"}', "Hi"),
    ],
)
def test_thoughts_before_the_answer_are_not_shown(text: str, answer: str, cuts: list[int]) -> None:
    """However the reply is cut into parts."""
    reading, places = AnswerReading({}, "respond"), sorted({min(cut, len(text)) for cut in cuts})
    parts = [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert "".join(map(reading.feed, parts)) == reading.shown == answer
    decision = reading.decide(Reply(text=text))
    assert isinstance(decision, Final)
    if answer:
        assert decision.args == {"answer": answer}


@pytest.mark.parametrize("text", ["<think>" + "a -> b, " * 40_000, " " * 300_000, "<think>x</think>" * 50_000])
def test_each_part_of_a_long_thought_is_read_once(text: str) -> None:
    """The time of a part does not grow with those before it."""
    assert not AnswerReading({}, "respond").feed(text)
    reading, began = AnswerReading({}, "respond"), time.process_time()
    assert not any(reading.feed(text[begin : begin + 8]) for begin in range(0, len(text), 8))
    assert time.process_time() - began < MAX_SECONDS
