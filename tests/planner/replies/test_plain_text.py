"""Answers that are plain text, whole and in parts of any size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.tools.messages import ToolSpec
from services.planner.models.types import Reply
from services.planner.replies.answer_stream import AnswerStream
from services.planner.replies.plain_text import TextStream, begins_action, read_plain
from services.planner.run.turn.decision import Calls, Final, Invalid
from services.planner.strategies.base import Habit, ThinkingFirst
from services.planner.strategies.planned.reading import AnswerReading
from services.planner.strategies.react.reading import ReactReading, TextReading
from services.planner.strategies.react.strategy import NativeReading

SPECS = {name: ToolSpec(name=name, input_schema={"type": "object"}) for name in ("look", "note")}
AS_WRITTEN = [
    '{"region": "Assam", "tea": true}',
    '{"text": "Tea", "lang": "en"}',
    '{"name": "Ann", "age": 3}',
    "[1, 2, 3]",
    '```python\nprint({"answer": 42})\n```',
    "Use `{{ name }}` in Jinja and {name} in f-strings.",
    'In Python: d = {"a": {"b": 1}}; print(d["a"])',
    "Half is $\\frac{1}{2}$, and if a < b then [x](y).",
    "Write `<think>` first and `</think>` last.",
    "Wrap it in <think>like this</think>, then answer.",
    'A call looks like {"name": "look", "arguments": {"q": "x"}} in JSON.',
    "Use <tool_call> in a template, or `[TOOL_CALLS]`.",
    "Thoughtful. Actions: speak louder.\nAction: buy milk",
    "It ends with a blank. ",
    "Write <answer>Tea</answer> there.",
    "The model writes </think> when it is done.",
    "Write {{ user.name }} and a { color: red; }.",
    "<order><id>7</id></order>",
    "<analysis>All of it.</analysis>\nWell.",
    "{ is a brace",
    "🍵 tea 🫖",
    "| a | b |\n| --- | --- |\n| {1} | <2> |",
    '```\n<tool_call>{"name": "look", "arguments": {"q": "x"}}</tool_call>\n```\nThat is one.',
    '{"type": "object", "properties": {"a": {"type": "string"}}}',
    "Run `kubectl get pods -o jsonpath='{.items[*].name}'`.",
    '"Tea is grown"',
    "42",
    "{% if x %}{{ x }}{% endif %}",
    "a < b and b > c, <3",
    "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+<y>",
]
THOUGHTS = ["<think>Keep it short.</think>\n\n", "[THINK]Hm.[/THINK]", "Keep it short.\n</think>\n\n"]


def parts(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts})
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


def readings(habit: Habit) -> list[Any]:
    """One of each kind that reads a text as the answer."""
    return [
        NativeReading(SPECS, habit=habit),
        TextReading(SPECS, {}, habit=habit),
        AnswerReading({}, "respond", habit=habit),
    ]


@pytest.mark.sample(5)
@given(cuts=st.lists(st.integers(0, 90), max_size=12))
@pytest.mark.parametrize("text", AS_WRITTEN)
def test_a_text_is_the_answer_as_it_was_written(text: str, cuts: list[int]) -> None:
    """In every strategy, behind thoughts too; what is shown of it is its beginning, and no thought."""
    for thought in ("", *THOUGHTS):
        models = ThinkingFirst(["m"] if thought.startswith("Keep") else [])
        for reading in readings(Habit(models, "m")):
            shown = "".join(map(reading.feed, parts(thought + text, cuts)))
            decision = reading.decide(Reply(text=thought + text))
            assert isinstance(decision, Final), text
            assert decision.args == {"answer": text}
            assert text.startswith(shown)
            assert shown == reading.shown


@given(cuts=st.lists(st.integers(0, 90), max_size=12))
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\n\n    x = 1\n    y = 2", "    x = 1\n    y = 2"),
        ("<answer>Tea</answer>", "<answer>Tea</answer>"),
        ("<think>Hm.</think>\n<answer>\nTea.\n</answer>", "Tea."),
        ("<think>Hm.</think>\n\n<response>\nTea </response> is.\n</response>\n", "Tea </response> is."),
        ("<think>Hm.</think><answer>Tea. </answer> Done.", "Tea. </answer> Done."),
        ("<think>Hm.</think>  Tea.", "Tea."),
    ],
)
def test_what_belongs_to_the_answer_and_what_is_around_it(text: str, answer: str, cuts: list[int]) -> None:
    """Its indentation; but no tag around the answer behind a thought."""
    for reading in readings(Habit(ThinkingFirst(), "m")):
        shown = "".join(map(reading.feed, parts(text, cuts)))
        decision = reading.decide(Reply(text=text))
        assert isinstance(decision, Final)
        assert decision.args == {"answer": answer}
        assert answer.startswith(shown)


@given(cuts=st.lists(st.integers(0, 120), max_size=12))
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=look>\n<parameter=q>\ntea\n</parameter>\n</function>\n</tool_call>",
        "I will look it up.\n\n<function=look>\n<parameter=q>\ntea\n</parameter>\n</function>",
        '[TOOL_CALLS]look[ARGS]{"q": "tea"}',
        'Thought: I should.\nAction: look\nAction Input: {"q": "tea"}',
        'Sure:\n```json\n{"name": "look", "arguments": {"q": "tea"}}\n```',
        '{"next_node": "look", "args": {"q": "tea"}}',
    ],
)
def test_a_call_in_a_text_is_made_and_not_shown(text: str, cuts: list[int]) -> None:
    """Where tools were offered; in an answer that was asked for alone it is no answer."""
    for thought in ("", *THOUGHTS[:2]):
        native, text_alone, responding = readings(Habit())
        shown = "".join(map(native.feed, parts(thought + text, cuts)))
        decision = native.decide(Reply(text=thought + text))
        assert isinstance(decision, Calls), text
        assert decision.calls == (("look", {"q": "tea"}),)
        assert not {"<", "[", "{", "Action"} & set(shown)
        assert "tea" not in shown
        assert isinstance(ReactReading(SPECS).decide(Reply(text=thought + text)), Calls)
        for reading in (text_alone, responding):
            assert "tea" not in "".join(map(reading.feed, parts(thought + text, cuts)))
            assert not reading.decide(Reply(text=thought + text)).has_text


def test_a_call_that_is_not_the_whole_reply_is_asked_for_again() -> None:
    """Also where it was cut, or no tool was offered. Nothing of it is used in the end."""
    call = "<function=look><parameter=q>tea</parameter></function>"
    for text, specs in ((f"{call}\nIt is grown in Assam.", SPECS), (call[:-20], SPECS), (call, {})):
        for reading in (NativeReading(specs), ReactReading(specs)):
            decision = reading.decide(Reply(text=text))
            assert isinstance(decision, Invalid)
            assert decision.salvage is None
    empty = NativeReading(SPECS).decide(Reply(text="<think>Only a thought.</think>"))
    assert isinstance(empty, Invalid)


def test_a_text_streams_from_its_first_character_on() -> None:
    """A short first sentence waits where calls may follow it. A draft that was shown is replaced."""
    native = NativeReading(SPECS)
    assert [native.feed(part) for part in ("S", "o it ", "is.", " Ok")] == ["S", "o it ", "is.", " Ok"]
    native = NativeReading(SPECS)
    assert [native.feed(part) for part in ("Let me look.", " It", " is")] == ["", "Let me look. It", " is"]
    models = ThinkingFirst()
    first = NativeReading(SPECS, habit=Habit(models, "m"))
    text = "Keep it short.\n</think>\n\nHello."
    assert first.feed(text).strip() == "Keep it short."
    first.decide(Reply(text=text))
    second = NativeReading(SPECS, habit=Habit(models, "m"))
    assert second.feed(text) == ""
    assert second.feed(" It is short") == "Hello. It is short"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"It is done.{token}", "It is done.") for token in ("<|im_end|>", "<|eot_id|>\n", "</s>", "<end_of_turn>")),
        ("<s>old</s>", "<s>old</s>"),
        ("It is <|im_end|> here.", "It is <|im_end|> here."),
        ("It is done.\n", "It is done.\n"),
    ],
)
def test_marks_at_the_end_of_a_turn_are_left_out(text: str, expected: str) -> None:
    """Those of templates, at the end alone."""
    assert read_plain(text).text == expected
    assert expected.startswith(TextStream(AnswerStream()).feed(text))


@pytest.mark.parametrize(
    ("text", "is_answer"),
    [
        ('I would send "body": {"filters": [{"name": "x"}]} to it.', True),
        ('The "rule": {"action": "delete", "row": 1} is the one.', True),
        ('": {"operations": [{"action": "delete", "row": 1}]}', True),
        ('Use "name": [{"function": "x"}, {"name": 1}].', True),
        ('The call: "args": {"answer": "x"}', False),
        ('": {"args": {"a": 1}, "tool": "work"}', False),
    ],
)
def test_a_piece_of_json_in_a_sentence_is_a_broken_action_by_its_keys(text: str, *, is_answer: bool) -> None:
    """Where the answer was asked for alone: only keys that nothing but actions have say what was meant."""
    decision = TextReading({}, {}).decide(Reply(text=text))
    assert isinstance(decision, Final)
    assert (decision.args == {"answer": text}) == is_answer


UNITS = ["{", "[", '"', "`", "(", "<", '{"a":', "{'", "A", "Action: x\n", "</think> x ", "{<think>", "`</think>`"]
UNITS += ["<think>", "<think></reasoning>", "</think>", "a </think> b ", "<think>x</think>", "\n<think>\nx\n</think>\n"]
UNITS += ["<tool_call>", "<function=look>", "<invoke name='a'>", "[TOOL_CALLS]", "<｜tool▁calls▁begin｜>x"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_model_that_repeats_itself_stops_nobody(unit: str) -> None:
    """A hundred kilobytes of braces, of marks of thoughts and of calls take a moment, whole and in parts."""
    for before in ("", "Well, "):
        text = before + unit * (100_000 // len(unit))
        begins_action(text)
        read_plain(text)
        streams = TextStream(AnswerStream()), TextStream(AnswerStream(), is_expected=True)
        for at in range(0, len(text), 64):
            for stream in streams:
                stream.feed(text[at : at + 64])
