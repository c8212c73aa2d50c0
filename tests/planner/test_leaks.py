"""An argument of a tool is never taken for the user's answer, however the action around it broke."""

import json
import random

import pytest

from services.planner.replies.actions.names import LEAD, is_argument, lead_on
from services.planner.replies.actions.normalize import normalize_action

TOOLS = frozenset({"save"})
CANARY = "CANARY"
FINAL = json.dumps({"next_node": "final_response", "args": {"answer": CANARY}})


def test_no_argument_becomes_the_answer_whatever_was_damaged() -> None:
    """Characters of tool calls are removed or added at random; an answer is shown only where the node is broken."""
    rng = random.Random(5)
    for _ in range(20_000):
        call = {
            "next_node": "save",
            "args": {rng.choice(["answer", "x"]): rng.choice([CANARY, FINAL, json.loads(FINAL)])},
        }
        text = json.dumps(dict(rng.sample(list(call.items()), 2)))
        start = text.index("next_node")
        kept = range(start - 1, start + len('next_node": "save"'))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            if at not in kept and at < text.index(CANARY):
                text = (
                    text[:at] + rng.choice(["", "", "#", "// c\n", "(", "\\", '"', "}", "{", ",", "…"]) + text[at + 1 :]
                )
                moved = text.find("next_node")
                kept = range(moved - 1, moved + len('next_node": "save"'))
        action = normalize_action(text, tools=TOOLS).action
        assert action is None or action.next_node == "save", text


@pytest.mark.parametrize(
    ("lead", "expected"),
    [
        ('"args": ', True),
        ("'inner' :", True),
        ('\\"args\\":', True),
        ("args = ", True),
        ("Action Input: ", True),
        ("save(", True),
        ("save(q=1, more=", True),
        ('<invoke name="save">\n', True),
        ("Here is my action: ", False),
        ("**Action**: ", False),
        ("the arguments are fine. ", False),
        ("action = ", False),
        ("(see below) ", False),
        ("<tool_call>", False),
        ("", False),
    ],
)
def test_what_stands_in_front_of_a_value(lead: str, *, expected: bool) -> None:
    """A key, a call or an element makes it a piece of something; prose does not."""
    assert is_argument(lead) is expected


def test_the_lead_is_the_same_however_the_text_was_split() -> None:
    """And stays short, whatever blanks a model puts in."""
    text = "Some prose of a certain length, " * 5 + '"args"' + " \n" * 500 + ":" + " " * 500
    whole = lead_on("", text)
    lead = ""
    for start in range(0, len(text), 7):
        lead = lead_on(lead, text[start : start + 7])
    assert lead == whole
    assert len(lead) <= LEAD
    assert is_argument(lead)


@pytest.mark.parametrize(
    "reply",
    [
        '{{"next_node": "save", "args": {"q": 1}}}',
        'A lone { here. {"next_node": "save", "args": {"q": 1}}',
        'p { color: red } and f(x) { return {y} } then: {"next_node": "save", "args": {"q": 1}}',
        'I could set "next_node": "final_response" later. {"next_node": "save", "args": {"q": 1}}',
    ],
)
def test_braces_in_prose_stay_prose(reply: str) -> None:
    """Only a node of its own makes an odd brace an action that broke."""
    action = normalize_action(reply, tools=TOOLS).action
    assert action is not None
    assert (action.next_node, action.args) == ("save", {"q": 1})
