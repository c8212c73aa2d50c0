"""Rules on texts of users: what they find, and that no expression stops a planner."""

import asyncio

import pytest

from contracts.runs.requests import RunRequested
from services.planner.run.people.input_rules import ADMITTED, InputRule, check, texts_of

CARDS = InputRule(name="cards", text=r"\b\d{4}(?: ?\d{4}){3}\b", action="refuse")
LAWYER = InputRule(name="lawyer", text=r"(?i)\blawyer\b", action="pause")


def test_the_first_rule_that_matches_counts() -> None:
    """In any of the texts."""
    refusal = check([CARDS, LAWYER], ["Call my Lawyer", "card 4111 1111 1111 1111"]).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == ("input_refused", "the rule cards does not admit this text")
    found = check([CARDS, LAWYER], ["What is new?", "Call my Lawyer"])
    assert (found.rule, found.text) == (LAWYER, "Call my Lawyer")
    assert check([CARDS, LAWYER], ["What is new?"]) == ADMITTED
    assert check([CARDS], [""]) == ADMITTED


@pytest.mark.parametrize("text", ["law\u200byer", "law\u00adyer", "\uff4c\uff41\uff57\uff59\uff45\uff52"])
def test_a_text_is_searched_as_it_looks(text: str) -> None:
    """Without invisible characters, and in the usual form of its letters."""
    assert check([LAWYER], [text]).rule == LAWYER


def test_all_that_a_request_tells_the_model_is_searched() -> None:
    """Not what the model is said to have answered."""
    request = RunRequested.model_validate(
        {
            "run_id": "r",
            "tenant": "t",
            "requested_at": 1,
            "trace_id": "t",
            "query": "q",
            "messages": [{"role": "user", "content": "asked"}, {"role": "assistant", "content": "answered"}],
            "llm_context": {"webhook": [{"key": "value"}, 7, None]},
        }
    )
    assert texts_of(request) == ["q", "asked", "webhook\nkey\nvalue"]


@pytest.mark.parametrize(("expression", "text"), [("(a|aa)+$", "a" * 100 + "b"), ("(x+x+)+y", "x" * 200_000)])
async def test_a_slow_expression_ends_in_time_and_counts_as_a_match(expression: str, text: str) -> None:
    """The event loop goes on meanwhile."""
    rule = InputRule(name="slow", text=expression, action="pause")
    searching, turns = asyncio.create_task(asyncio.to_thread(check, [rule], [text])), 0
    while not searching.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert (await searching).rule == rule
    assert turns > 5
