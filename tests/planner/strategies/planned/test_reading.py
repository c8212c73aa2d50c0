"""The answer of the strategy `planned`, as it is streamed and as it is read."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwire.plans import PlanBounds
from services.planner.models.types import Reply
from services.planner.run.turn.decision import Final
from services.planner.strategies.planned.execution import PLANNING, Planned
from services.planner.strategies.planned.reading import AnswerReading, NoPlan, PlanReading, PlanStream, plan_in
from tests.planner.replies.test_actions_properties import TEXTS

MAX_SECONDS = 5.0
"""Far above what it takes."""


def pieces(text: str, cuts: list[int]) -> list[str]:
    """A text in parts that are cut at these places."""
    return [text[begin:end] for begin, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)])]


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
    reading = AnswerReading({}, "respond")
    assert "".join(map(reading.feed, pieces(text, cuts))) == reading.shown == answer
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


def streamed(text: str, cuts: list[int]) -> str:
    """Feed a text in parts that are cut at these places."""
    stream = PlanStream()
    shown = "".join(map(stream.feed, pieces(text, cuts)))
    assert shown == stream.shown
    return shown


@given(content=TEXTS, first=st.booleans(), cuts=st.lists(st.integers(0, 200), max_size=8), raw=st.booleans())
def test_however_it_arrives_the_content_is_streamed(content: str, cuts: list[int], *, first: bool, raw: bool) -> None:
    """As the final parse reads it, whichever member comes first."""
    members = {"type": "direct_response", "content": content}
    text = json.dumps(members if first else dict(reversed(members.items())), ensure_ascii=not raw)
    assert streamed(text, cuts) == content


@given(cuts=st.lists(st.integers(0, 200), max_size=8), fenced=st.booleans())
def test_nothing_of_a_plan_is_streamed(cuts: list[int], *, fenced: bool) -> None:
    """Not even a content beside the calls."""
    plan = json.dumps(
        {"content": "no", "type": "tool_calls", "calls": [{"tool_name": "x", "arguments": {"content": "n"}}]}
    )
    assert streamed(f"Well:\n```json\n{plan}\n```" if fenced else plan, cuts) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": 1} {"type": "direct_response", "content": "yes"}', "yes"),
        ('{"type": "direct_response", "content": 7}', ""),
        ('{"type": 7, "content": "no"}', ""),
        ('{"content": "no"}', ""),
        ('{"type": "direct_response", "content": "yes", "content": "no"}', "yes"),
        ('{"type": "direct_response", "inner": {"content": "no"}, "content": "yes"}', "yes"),
        ('{"type": "direct_response", "content": "yes"} {"type": "direct_response", "content": "no"}', "yes"),
        (
            '<think>{"type": "direct_response", "content": "no"}</think>{"type": "direct_response", "content": "yes"}',
            "yes",
        ),
        ("prose", ""),
    ],
)
def test_the_first_object_with_a_type_counts(text: str, shown: str) -> None:
    """Text, thoughts and other objects before it do not."""
    assert streamed(text, []) == shown


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"type": "tool_c', "unparseable"),
        ('{"type": "tool_calls", "calls": [{"arguments": {"a": ' + "[" * 120, "too_deep"),
        ("[" * 5000, "too_deep"),
        ("{]", "unparseable"),
    ],
)
def test_arguments_that_are_no_json(text: str, code: str) -> None:
    """The error says why."""
    called = ({"id": "1", "function": {"name": PLANNING, "arguments": text}},)
    decision = PlanReading({}, transport="tools", bounds=PlanBounds()).decide(Reply(text="", tool_calls=called))
    assert isinstance(decision, Planned)
    assert [each.error.type for each in decision.errors] == [code]


def test_a_text_without_an_object_holds_no_plan() -> None:
    """It is an answer, and no error."""
    with pytest.raises(NoPlan) as raised:
        plan_in("Hello.")
    assert raised.value.broken is None


def test_an_object_with_a_known_type_is_preferred() -> None:
    """Others may stand before it."""
    assert plan_in('{"note": 1} {"type": "tool_calls", "calls": []}') == {"type": "tool_calls", "calls": []}
    assert plan_in('So: {"note": 1}') == {"note": 1}
