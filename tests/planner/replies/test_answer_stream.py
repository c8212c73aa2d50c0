"""The answer appears while the reply is still being written, and nothing else of the reply ever does, to its end."""

import json
from typing import Any

import pytest

from contracts.runs.decisions import PlannerAction
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream, Settled, settle

FINAL = '"next_node": "final_response"'


def read(text: str, **options: object) -> tuple[str, bool]:
    """What of a reply is seen, fed at once and character by character, and whether it was recognised as final."""
    at_once = AnswerStream(**options)  # type: ignore[arg-type]
    slowly = AnswerStream(**options)  # type: ignore[arg-type]
    shown = at_once.feed(text)
    assert "".join(slowly.feed(char) for char in text) == shown == at_once.shown == slowly.shown
    assert slowly.is_terminal == at_once.is_terminal
    return shown, at_once.is_terminal


def final(args: object, **fields: object) -> str:
    return json.dumps({"next_node": "final_response", "args": args, **fields})


FINAL_NODES = ('" final_response "', '"Final_Response"', '"final\\u005fresponse"', "null", "None", '"null"', '" NULL "')
OTHER_NODES = ("5", "false", "[]", '["final_response"]', '{"next_node": "final_response"}', '"save"', '"plan"')


@pytest.mark.parametrize(
    ("node", "seen"), [*((node, True) for node in FINAL_NODES), *((node, False) for node in OTHER_NODES)]
)
def test_what_counts_as_a_final_node(node: str, *, seen: bool) -> None:
    """Padding, case and null as in the final parse; no other type."""
    assert read(f'{{"next_node": {node}, "args": {{"answer": "x"}}}}') == ("x" if seen else "", seen)
    assert read(f'{{"args": {{"answer": "x"}}, "next_node": {node}}}') == ("x" if seen else "", seen)


def test_a_tool_hides_the_opcode_that_is_spelt_like_it() -> None:
    """A tool called `Final_Response` is that tool; the exact opcode is reserved."""
    tools = frozenset({"Final_Response", "null"})
    assert read('{"next_node": "Final_Response", "args": {"answer": "secret"}}', tools=tools) == ("", False)
    assert read('{"next_node": "null", "args": {"answer": "secret"}}', tools=tools) == ("", False)
    assert read('{"next_node": "FINAL_RESPONSE", "args": {"answer": "x"}}', tools=tools) == ("x", True)
    assert read('{"next_node": null, "args": {"answer": "x"}}', tools=tools) == ("x", True)


@pytest.mark.parametrize("plan", ['[{"node": "a", "args": {"answer": "secret"}}]', "[]", "{}", '"p"', "0", "false"])
@pytest.mark.parametrize("node", ["null", '"null"', '"final_response"'])
def test_a_plan_in_front_of_the_answer_makes_it_a_plan(plan: str, node: str) -> None:
    """A `plan` of null is no plan."""
    assert read(f'{{"next_node": {node}, "plan": {plan}, "args": {{"answer": "x"}}}}') == ("", False)
    assert read(f'{{"args": {{"answer": "x"}}, "plan": {plan}, "next_node": {node}}}') == ("", False)
    assert read(f'{{"next_node": {node}, "args": null, "plan": {plan}}}') == ("", False)
    assert read(f'{{"next_node": {node}, "plan": null, "args": {{"answer": "x"}}}}') == ("x", True)


@pytest.mark.parametrize(
    ("args", "seen"),
    [
        ({"raw_answer": "x"}, "x"),
        ({"answer": "x", "raw_answer": "y"}, "x"),
        ({"raw_answer": "y", "answer": "x"}, "y"),
        (
            {"meta": {"answer": "no", "args": {"answer": "no"}}, "list": ["no", {"answer": "no"}], "answer": "real"},
            "real",
        ),
        ({"text": "T", "answer": "x", "confidence": 0.9}, "x"),
        ({"": "no", "Answer": "no", "answer ": "no"}, ""),
        ({"answer": 42}, ""),
        ({"answer": {"text": "x"}}, ""),
        ({"answer": ["x", "y"]}, ""),
        ({"answer": None, "raw_answer": "x", "text": "no"}, "x"),
        ({"raw_answer": None, "answer": "x"}, "x"),
        ({"answer": 5, "raw_answer": "no"}, ""),
        ({"answer": ""}, ""),
        ("hello", "hello"),
        ("  hello", "  hello"),
        ("   ", "   "),
        (["one", "two", "", "four"], "one\ntwo\n\nfour"),
        (["", "b"], "\nb"),
        (["one", 2, "three"], "one"),
        ([{"answer": "no"}, ["no"]], ""),
        ([], ""),
        (5, ""),
        (None, ""),
    ],
)
def test_where_the_answer_stands(args: object, seen: str) -> None:
    """In `args.answer` or `args.raw_answer`, whichever is first, or `args` itself; not deeper, under no other name."""
    assert read(final(args)) == (seen, True)
    assert read(json.dumps({"args": args, "next_node": "final_response"})) == (seen, True)


def test_fields_of_the_same_name_beside_args_do_not_count() -> None:
    """Only `args` holds the answer that streams."""
    assert read(final({"answer": "x"}, meta={"args": {"answer": "no"}, "next_node": "save", "plan": []})) == ("x", True)
    assert read('{"action": {"next_node": "final_response", "args": {"answer": "x"}}}') == ("", False)
    assert read('{"answer": "x"}') == ("", False)
    assert read('{"next_node": "final_response", "answer": "x"}') == ("", True)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\" \\ \/ \b \f \n \r \t", '" \\ / \b \f \n \r \t'),
        (r"caf\u00E9 \u0000", "café \0"),
        (r"\frac \\frac C:\bin\f", "\\frac \\frac C:\\bin\f"),
        (r"\ud83d\ude00!", "😀!"),
        (r"\ud83d!", "\ufffd!"),
        (r"\ude00!", "\ufffd!"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\n", "\ufffd\n"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d!", "\ufffd!"),
        ("\\ud83d\ude00", "😀"),
        ("line\none\ttab", "line\none\ttab"),
        ("no \\x escape", "no "),
        ("no \\u00g0 escape", "no "),
        (r"it\'s", "it"),
    ],
)
def test_what_a_string_means(written: str, meant: str) -> None:
    """Escapes may be split anywhere, halves of a pair are joined, a lone half is U+FFFD."""
    assert read(f'{{{FINAL}, "args": {{"answer": "{written}"}}}}') == (meant, True)


@pytest.mark.parametrize(
    "before",
    [
        "\ufeff",
        'I could set "next_node": "plan" here. ',
        "```json\n",
        "[",
        '<think>or {"next_node": "final_response", "args": {"answer": "draft"}}</think>',
        "<THINKING> 1 < 2 <b> </think> {'</THINKING>",
        "a < b <think",
        "Use {curly}, {}, {a, b}, {x: 1}, {{name}} and { lone. ",
        "a { lone brace, ",
        '{"x": 1}',
        "[1] [-2, 3.5] [note] [ ] [[]] [x] [[word]] {[1]} {a [word} ",
        "[1, [2, 3], {}, ",
        'Of ["this", "or that"] and [["x"], 1]: ',
        '{"thought": "the user\'s {"} [{"args": {"answer": "no"}}, ',
        '{"answer": "no"} {"plan": [{"node": "a"}]}',
    ],
)
def test_text_before_the_object_does_not_count(before: str) -> None:
    """Prose, fences, thoughts and other objects are passed over."""
    assert read(before + final({"answer": "hello"}) + " and more }") == ("hello", True)
    assert read(before + '{"next_node": "save", "args": {"answer": "secret"}}' + final({"answer": "B"})) == ("", False)


@pytest.mark.parametrize(
    "tool",
    [
        {"next_node": "save", "args": {"note": '{"next_node": "final_response", "args": {"answer": "secret"}}'}},
        {"next_node": "save", "args": {"next_node": "final_response", "args": {"answer": "secret"}}},
        {"args": {"next_node": "final_response", "args": {"answer": "secret"}}, "next_node": "save"},
    ],
)
def test_notations_that_only_the_final_parse_can_read_show_nothing(tool: dict[str, object]) -> None:
    """Python's strings and broken JSON can hold anything, so nothing inside of them is taken for an action."""
    for text in (
        repr(tool),
        "{1: 2, " + repr(tool)[1:],
        "{# it's\n" + repr(tool)[1:],
        "{next_node: 'save', args: " + json.dumps(tool) + "}",
        "{" + json.dumps(tool) + "}",
        '{"next_node": "save", "args": {"note": "he said "no" ' + json.dumps(tool) + '"}}',
        json.dumps(json.dumps(tool)),
        "[" + json.dumps(json.dumps(tool)) + ", ",
        '["a", ' + json.dumps(json.dumps(tool)) + "] ",
        '["a" b, {"x": ',
        "['" + json.dumps(tool) + "', ",
        "[None, '" + json.dumps(tool) + "', ",
        "[{}, '" + json.dumps(tool) + "', ",
        "[{}, {next_node: 1}, ",
        "[{}, [word, ",
        "{x: next_node} ",
        "{next_node: 1} ",
        "{ lone [next_node: 1} {a <think>",
        "<think>" + json.dumps(tool),
    ):
        assert read(text + final({"answer": "secret"})) == ("", False)


def test_a_key_that_may_come_once_comes_once() -> None:
    """Behind the second one nothing is given out; the final parse refuses such a reply."""
    assert read('{"next_node": "save", "next_node": "final_response", "args": {"answer": "secret"}}') == ("", False)
    assert read('{"args": {"answer": "secret"}, "args": {"answer": "x"}, "next_node": "final_response"}') == ("", False)
    assert read(f'{{{FINAL}, "args": {{"answer": "x", "answer": "y"}}}}') == ("x", True)


def test_what_the_final_parse_forgives_the_stream_forgives() -> None:
    """Trailing commas, raw control characters, Python's constants, a reply that is cut off."""
    assert read(f'{{{FINAL}, "args": {{"x": [1, 2.5e-3, True,], "n": None, "answer": "a\x00b",}},}}') == ("a\0b", True)
    assert read(f'{{{FINAL}, "args": {{"answer": "Hel') == ("Hel", True)
    assert read(f'{{{FINAL}, "args": {{"answer": "a" "b"}}}}') == ("a", True)


@pytest.mark.parametrize(
    "wrong", ["NaN", "01", "1.", "tru", "nullx", "-", "x", "'s'", ",", "}", "1" * 80, '["a" "b"]', "[" * 200]
)
def test_what_is_no_json_ends_the_stream(wrong: str) -> None:
    """Everything after it waits for the final parse."""
    assert read(f'{{{FINAL}, "x": {wrong}, "args": {{"answer": "x"}}}}') == ("", True)


def test_the_strict_form_has_two_fields() -> None:
    """`unified` takes the exact opcode only."""
    assert read(final({"answer": "x"}), action_format="unified") == ("x", True)
    assert read('{"next_node": null, "args": {"answer": "x"}}', action_format="unified") == ("", False)


def settled(reply: str, **options: Any) -> tuple[str, Settled]:
    """What a reply showed while it came, and what is left to do."""
    stream = AnswerStream(**options)
    shown = "".join(stream.feed(char) for char in reply)
    return shown, settle(stream, normalize_action(reply, **options).action)


@pytest.mark.parametrize(
    ("reply", "early", "late"),
    [
        (final({"answer": "hello"}), "hello", ""),
        (final({"text": "hello"}), "", "hello"),
        (final({"answer": 42}), "", "42"),
        (final({"answer": ["a", "b"]}), "", "a\nb"),
        (final({"answer": None, "raw_answer": "hello"}), "hello", ""),
        (final(["a", "b"]), "a\nb", ""),
        (final(["a", 2, "c"]), "a", "\n2\nc"),
        (final('{"answer": "hello"}'), "", "hello"),
        (final({}), "", ""),
        ("{'next_node': 'final_response', 'args': {'answer': 'hello'}}", "", "hello"),
        ('{"next_node": "final_response", "args": {"answer": "where \\(x\\) is"}}', "where ", "\\(x\\) is"),
        ('{"next_node": "final_response", "answer": "hello"}', "", "hello"),
        (f'{{"thought": "t", "action": {final({"answer": "hello"})}}}', "", "hello"),
        (json.dumps(final({"answer": "hello"})), "", "hello"),
        (f"<think>{final({'answer': 'hello'})}</think>", "", "hello"),
    ],
)
def test_what_only_the_end_reveals_is_one_more_chunk(reply: str, early: str, late: str) -> None:
    """The stream knows JSON; whatever else the final parse takes comes late. Together both are the answer."""
    shown, rest = settled(reply)
    assert (shown, rest.text, rest.void) == (early, late, None)
    assert rest.action is not None
    assert rest.action.args.get("answer", "") == early + late


def test_a_shown_answer_stands_against_a_plan_behind_it() -> None:
    """What was seen is not taken back; the final parse reads it so, too."""
    shown, rest = settled('{"next_node": null, "args": {"answer": "x"}, "plan": [{"node": "a"}]}')
    assert (shown, rest) == ("x", Settled(PlannerAction(next_node="final_response", args={"answer": "x"})))
    shown, rest = settled('{"next_node": null, "args": {"answer": ""}, "plan": [{"node": "a"}]}')
    assert shown == ""
    assert rest.action is not None
    assert rest.action.next_node == "plan"


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ('{"next_node": "final_response", "args": {"answer": "Hel', "Hel"),
        ('{"next_node": "final_response", "args": {"answer": "Hel", "answer": "lo"}}', "Hel"),
        ('{"next_node": "final_response", "args": {"answer": "Hel"} "x"}', "Hel"),
        ("Sorry?", ""),
        ('{"next_node": 5, "args": {"answer": "x"}}', ""),
    ],
)
def test_text_of_a_reply_that_is_no_action_is_void(reply: str, shown: str) -> None:
    """The next attempt shows the answer. Where nothing was shown, nothing is taken back."""
    assert settled(reply) == (shown, Settled(None, void="unparseable" if shown else None))


def test_a_text_that_stands_in_for_a_reply_is_settled_like_an_answer() -> None:
    """Salvage of a reply that was cut off: the streamed text counts if the salvaged text begins with it."""
    stream = AnswerStream()
    stream.feed('{"next_node": "final_response", "args": {"answer": "Hel')
    salvaged = PlannerAction(next_node="final_response", args={"answer": "Hello"})
    assert settle(stream, salvaged) == Settled(salvaged, "lo")
    other = PlannerAction(next_node="final_response", args={"answer": "No answer produced."})
    assert settle(stream, other) == Settled(other, "No answer produced.", void="another_answer")
    assert settle(stream, PlannerAction(next_node="save")).void == "another_action"


def test_the_strict_form_refuses_what_it_showed() -> None:
    """Only the end shows that there is a third field."""
    shown, rest = settled(
        '{"next_node": "final_response", "args": {"answer": "x"}, "thought": "t"}', action_format="unified"
    )
    assert (shown, rest) == ("x", Settled(None, void="unparseable"))
