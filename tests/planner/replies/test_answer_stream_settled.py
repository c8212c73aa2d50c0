"""When the reply has ended, the chunks of the last attempt are the answer."""

import json
from typing import Any

import pytest

from contracts.runs.actions import PlannerAction
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream, Settled, settle


def settled(reply: str, **options: Any) -> tuple[str, Settled]:
    """What a reply showed while it came, and what is left to do."""
    stream = AnswerStream(**options)
    shown = "".join(stream.feed(char) for char in reply)
    return shown, settle(stream, normalize_action(reply, **options).action)


@pytest.mark.parametrize(
    ("args", "early", "late"),
    [
        ({"answer": "hello"}, "hello", ""),
        ({"text": "hello"}, "", "hello"),
        ({"answer": 42}, "", "42"),
        ({"answer": ["a", "b"]}, "", "a\nb"),
        ({"answer": {"text": "hello"}}, "", "hello"),
        ({"answer": None, "raw_answer": "hello"}, "hello", ""),
        (["a", "b"], "a\nb", ""),
        (["a", 2, "c"], "a", "\n2\nc"),
        ('{"answer": "hello"}', "", "hello"),
        ({}, "", ""),
    ],
)
def test_what_only_the_end_reveals_is_one_more_chunk(args: Any, early: str, late: str) -> None:
    """Together both are the answer."""
    shown, rest = settled(json.dumps({"next_node": "final_response", "args": args}))
    assert (shown, rest.text, rest.void) == (early, late, None)
    assert rest.action is not None
    assert rest.action.args.get("answer", "") == early + late


@pytest.mark.parametrize(
    ("reply", "early", "late"),
    [
        ("{'next_node': 'final_response', 'args': {'answer': 'hello'}}", "", "hello"),
        ('{"next_node": "final_response", "args": {"answer": "where \\(x\\) is"}}', "where ", "\\(x\\) is"),
        ('{"next_node": "final_response", "answer": "hello"}', "", "hello"),
        ('{"answer": "hello"}', "", "hello"),
        ('{"thought": "t", "action": {"next_node": "final_response", "args": {"answer": "hello"}}}', "", "hello"),
        (json.dumps('{"next_node": "final_response", "args": {"answer": "hello"}}'), "", "hello"),
        ('<think>{"next_node": "final_response", "args": {"answer": "hello"}}</think>', "", "hello"),
    ],
)
def test_other_notations_are_shown_at_the_end(reply: str, early: str, late: str) -> None:
    """The stream knows JSON; whatever else the final parse takes comes late, but it comes."""
    shown, rest = settled(reply)
    assert (shown, rest.text, rest.void) == (early, late, None)


def test_a_shown_answer_stands_against_a_plan_behind_it() -> None:
    """What was seen is not taken back; the final parse reads it so, too."""
    shown, rest = settled('{"next_node": null, "args": {"answer": "x"}, "plan": [{"node": "a"}]}')
    assert (shown, rest) == ("x", Settled(PlannerAction(next_node="final_response", args={"answer": "x"})))
    shown, rest = settled('{"next_node": null, "args": {"answer": ""}, "plan": [{"node": "a"}]}')
    assert shown == ""
    assert rest.action is not None
    assert rest.action.next_node == "plan"


@pytest.mark.parametrize(
    "reply",
    [
        '{"next_node": "final_response", "args": {"answer": "Hel',
        '{"next_node": "final_response", "args": {"answer": "Hel", "answer": "lo"}}',
        '{"next_node": "final_response", "args": {"answer": "Hel"} "x"}',
    ],
)
def test_text_of_a_reply_that_is_no_action_is_void(reply: str) -> None:
    """The next attempt shows the answer."""
    assert settled(reply) == ("Hel", Settled(None, void="unparseable"))


def test_a_reply_that_is_no_action_and_showed_nothing_voids_nothing() -> None:
    """Nothing was shown, so nothing is taken back."""
    assert settled("Sorry?") == ("", Settled(None))
    assert settled('{"next_node": 5, "args": {"answer": "x"}}') == ("", Settled(None))


def test_a_tool_call_leaves_nothing_to_show() -> None:
    """The arguments of a tool call are not shown."""
    _, rest = settled('{"next_node": "save", "args": {"answer": "secret"}}')
    assert rest == Settled(PlannerAction(next_node="save", args={"answer": "secret"}))


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
