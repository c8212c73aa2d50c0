"""The text of an answer that was asked for alone: what of a reply is the answer, and what of it is a draft."""

import pytest

from services.planner.models.types import Reply
from services.planner.run.turn.decision import Final
from services.planner.strategies.react.reading import TextReading


def answer(text: str) -> str:
    """What a reply comes to; empty where it holds no answer."""
    reading = TextReading({}, {})
    reading.feed(text)
    decision = reading.decide(Reply(text=text))
    assert isinstance(decision, Final)
    return str(decision.args.get("answer", ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So be it.", "So be it."),
        ("<think>hm</think>So be it.", "So be it."),
        ("<Think>a</THINK><reasoning>b</reasoning>So<think>c</think> be it.", "So<think>c</think> be it."),
        ("<think>a<think>b</think>c</think>So be it.", "So be it."),
        ("<think>a<think>b</think>So be it.", "So be it."),
        ("<think>never closed", ""),
        ("So </think> be it.", "So </think> be it."),
        ("First a draft.\n</think>\n\nSo be it.", "So be it."),
    ],
)
def test_a_closed_thought_is_no_answer(text: str, expected: str) -> None:
    """Thoughts precede the answer; marks in its sentences are its own, and what is never closed is all thought."""
    assert answer(text) == expected


@pytest.mark.parametrize("unit", ["<think>", "<think></reasoning>", "</think>", "{'", "<", "{<think>"])
def test_a_model_that_repeats_itself_stops_nobody(unit: str) -> None:
    """Half a megabyte of tags takes a moment."""
    answer(unit * (500_000 // len(unit)))


@pytest.mark.parametrize(
    "text",
    [
        'I would send "body": {"filters": [{"name": "x"}]} to it.',
        'The "rule": {"action": "delete", "row": 1} is the one.',
        '\\: {"operations": [{"action": "delete", "row": 1}]}',
        '": {"operations": [{"action": "delete", "row": 1}]}',
        'Use "name": [{"function": "x"}, {"name": 1}].',
    ],
)
def test_a_piece_of_json_in_a_sentence_is_no_broken_action(text: str) -> None:
    """Of a broken action it has no key that only actions have."""
    assert answer(text) == text


@pytest.mark.parametrize("text", ['The call: "args": {"answer": "x"}', '": {"args": {"a": 1}, "tool": "work"}'])
def test_a_piece_of_an_action_is_one(text: str) -> None:
    """Its keys say what was meant."""
    assert answer(text) != text
