"""Thoughts in the text of a reply: every mark of the table, with its opening and without."""

import pytest

from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream
from services.planner.replies.plain_text import TextStream, read_plain
from services.planner.replies.thoughts import Head, apart
from services.planner.strategies.base import FORGOTTEN_AFTER, Habit, ThinkingFirst

DRAFT = '{"next_node": "final_response", "args": {"answer": "A draft."}}'
CALL = '{"next_node": "look", "args": {"q": "tea"}}'
MARKS = [
    *((f"<{name}>", f"</{name}>") for name in ("think", "Thinking", "THOUGHT", "reasoning", "seed:think")),
    *((f"<{name}>", f"</{name}>") for name in ("longcat_think", "antThinking", "think:opensource", "Scratchpad")),
    ("<think >", "</ think >"),
    ('<think budget="low">', "</think>"),
    *((f"<{name}>", f"</{name}>") for name in ("cot", "internal_monologue")),
    ("[THINK]", "[/THINK]"),
    ("[reasoning]", "[/reasoning]"),
    ("<|thinking|>", "<|/thinking|>"),
    ("<|reasoning_start|>", "<|reasoning_end|>"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>commentary<|message|>", "<|start|>assistant<|channel|>final <|constrain|>json<|message|>"),
]


def test_channels_whose_special_tokens_a_server_leaves_out() -> None:
    """What remains of harmony."""
    parted = apart("analysisWe look.assistantfinalTea, as `assistantfinal` says.")
    assert parted.text == "Tea, as `assistantfinal` says."


@pytest.mark.parametrize(("opening", "closing"), MARKS)
@pytest.mark.parametrize("thought", ["Keep it short.", f"I could say {DRAFT} but no.", f"Say\n{DRAFT}\nor {{'x"])
def test_every_mark_encloses_a_thought(opening: str, closing: str, thought: str) -> None:
    """In a text and before an action, with the opening mark and without, once and nested."""
    nested = "" if "<|channel|>" in opening + closing else f"{opening}a{opening}b{closing}"
    for before in (opening, "", nested, f"{opening}a{closing}\n{opening}"):
        parted = apart(f"{before}{thought}\n{closing}\n\nHello {{there}}.")
        assert (parted.text, parted.is_unopened) == ("Hello {there}.", not before)
        assert thought in (parted.thought or "")
        normalized = normalize_action(f"{before}{thought}\n{closing}\n{CALL}")
        assert normalized.action is not None
        assert (normalized.action.next_node, normalized.is_unopened) == ("look", not before)


@pytest.mark.parametrize(
    "text",
    [
        "Write `<think>` first and `</think>` last.",
        "Wrap it in <think>like this</think>, then answer.",
        "The tag </think> ends it.",
        'It ends with "</think>", not with [/THINK].',
        "```\nHm.\n</think>\n```\nThat is all.",
        "Done <think>.",
        "<thin air> and <b>bold</b> [1] [THIN]",
    ],
)
def test_marks_in_an_answer_are_its_own(text: str) -> None:
    """In code, in quotes, in pairs and in the middle of sentences."""
    assert apart(text) == (text, 0, None, False, False)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(("opening", "closing"), [mark for mark in MARKS if "<|channel|>" not in "".join(mark)])
def test_a_thought_in_the_middle_is_left_out(opening: str, closing: str, size: int) -> None:
    """What stands before it stays, and nothing of it streams, whatever the parts are."""
    closing = closing.removesuffix("\n<|begin_of_solution|>")
    for text, answer in (
        (f"Tea.\n\n{opening}\nHm `b.\n{closing}\n\nHello.", "Tea.\n\nHello."),
        (f"Tea, {opening}\nHm.\n  {closing}\nhello\n{opening}Hm.\n{closing}\nthere.", "Tea, hello\nthere."),
        (f"```\n{opening}\nHm.\n{closing}\n```\nis code.", None),
        (f"Tea in {opening}Hm.{closing} and\nhello.", None),
    ):
        assert read_plain(text).text == (text if answer is None else answer)
        stream = TextStream(AnswerStream(amid_prose=False))
        shown = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert (answer or text).startswith(shown)
        assert len(shown) > 2


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Keep it short.</think>Hello.", "Hello."),
        ("Is it ` or ``` here?\n</think>\n\nHello.", "Hello."),
        ("One.\n</think>\nTwo.\n</think>\nThree.", "Three."),
        ("Sure.\n<think>\nHm.\n</think>\nHello.", "Hello."),
        ("Cut behind the thought.\n</think>\n", ""),
        ("<think>cut in the thought", ""),
        ("<think>a<think>b</think>c</think>Hello.", "Hello."),
        ("<think>a<think>b</think>Hello.", "Hello."),
        ("<Think>a</THINK><reasoning>b</reasoning>So<think>c</think> be it.", "So<think>c</think> be it."),
    ],
)
def test_where_a_thought_ends(text: str, answer: str) -> None:
    """The last mark that closes one counts. Without a text behind it there is no answer."""
    assert apart(text).text == answer


def test_a_draft_in_an_object_is_no_action_of_its_thought() -> None:
    """Broken objects of a thought do not hide the action behind it, and nothing inside of them is used."""
    for draft in (DRAFT, DRAFT[:-9], CALL[:-2], '{"a", then', "{'next_node': 'no'"):
        normalized = normalize_action(f"Maybe {draft} or not.\n</think>\n{CALL}")
        assert normalized.action is not None
        assert normalized.action.next_node == "look"
    assert normalize_action(f"{CALL[:-2]}\n</think>\n{DRAFT}").action is None
    kept = normalize_action(f"{DRAFT} </think>")
    assert (kept.action and kept.action.args, kept.is_unopened) == ({"answer": "A draft."}, False)


@pytest.mark.parametrize(("opening", "closing"), MARKS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_parts_of_any_size_come_to_the_same(opening: str, closing: str, size: int) -> None:
    """Nothing of a thought is shown, where its opening mark is there or not expected."""
    for text, is_expected in ((f" {opening}Hm <b>.{closing}\nHello <b>.", False), (f"Hm.\n{closing} Hello <b>.", True)):
        head = Head(is_expected=is_expected)
        assert "".join(head.feed(text[at : at + size]) for at in range(0, len(text), size)) == "Hello <b>."
    stream = AnswerStream(amid_prose=False)
    text = f"So: {opening}{DRAFT}{closing}\n{DRAFT.replace('A draft', 'Hello')}"
    assert "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size)) == "Hello."


def test_a_draft_in_a_sentence_is_not_streamed() -> None:
    """It may be part of a thought; the end of the reply shows what it is."""
    for text, shown in ((f"I could say {DRAFT}", ""), (f"So:\n{DRAFT}", "A draft."), (f"```json\n{DRAFT}", "A draft.")):
        assert AnswerStream(amid_prose=False).feed(text) == shown


def test_a_model_is_known_by_its_replies() -> None:
    """From the first that leaves the mark out, until many have none; a declared one is known always."""
    models = ThinkingFirst(["declared"])
    habit = Habit(models, "learnt")
    assert (habit.is_expected, Habit(models, "declared").is_expected, Habit().is_expected) == (False, True, False)
    habit.note(is_unopened=True)
    for _ in range(FORGOTTEN_AFTER):
        assert habit.is_expected
        habit.note(is_unopened=False)
    assert not habit.is_expected
    head = Head(is_expected=True)
    head.release()
    assert head.feed("Hello.") == "Hello."
