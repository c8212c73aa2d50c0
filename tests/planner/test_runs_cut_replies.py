"""Replies that end too early: asked for again, answered by a fallback, or the run says that its answer is cut."""

import json
from typing import Any

import pytest

from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer

WHOLE = "Boil the water. Warm the pot. Wait for four minutes."
PART = WHOLE[:40]
CUT_ACTION = answer(WHOLE).text[:75]
SPARE = "openai/spare"
BROKEN: list[dict[str, Any]] = [
    {"finish_reason": None, "done": False, "usage": None},
    {"finish_reason": "network_error"},
    {"finish_reason": "content_filter"},
    {"finish_reason": "length"},
]


def native(name: str, arguments: str, **more: Any) -> Say:
    """A reply that is one native call."""
    return Say(tool_calls=[{"name": name, "arguments": arguments}], **{"finish_reason": "tool_calls", **more})


def plan_of(content: str, **more: Any) -> Say:
    """A native plan that answers directly."""
    return native("__planning__", json.dumps({"type": "direct_response", "content": content}), **more)


KINDS: dict[str, tuple[dict[str, Any], list[Say], str, Say]] = {
    "json": ({}, [], CUT_ACTION, answer(WHOLE)),
    "text_alone": ({}, [action("final_response")], PART, Say(text=WHOLE)),
    "native": ({"action_transport": "tools"}, [], PART, native("final_response", json.dumps({"answer": WHOLE}))),
    "planned": ({"strategy": "planned"}, [], PART, plan_of(WHOLE)),
}
"""Settings of the agent, replies before the cut one, the text that is cut, and the whole reply."""


@pytest.mark.parametrize("end", BROKEN, ids=lambda end: str(end["finish_reason"]))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cut_reply_is_asked_for_again(
    plan: Plan, provider: ModelServer, kind: str, end: dict[str, Any]
) -> None:
    """Whatever was shown of it is replaced by the whole answer."""
    agent, before, part, whole = KINDS[kind]
    provider.say(*before, Say(text=part, **end), whole)
    story = await (await plan(agents={"default": agent})).tell()
    assert story.shown() == story.end.raw_answer == WHOLE
    assert not [warning for warning in story.end.warnings if "cut" in warning]
    assert len(provider.ledger) == len(before) + 2


@pytest.mark.parametrize("end", BROKEN, ids=lambda end: str(end["finish_reason"]))
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_stays_cut_says_so(
    plan: Plan, provider: ModelServer, kind: str, end: dict[str, Any]
) -> None:
    """The part is the answer, its route is `partial`, and a warning says why."""
    agent, before, part, _ = KINDS[kind]
    provider.say(*before, Say(text=part, **end))
    story = await (await plan(agents={"default": agent})).tell()
    assert (story.end.type, story.end.route) == ("done", "partial")
    assert story.end.raw_answer
    assert WHOLE.startswith(story.end.raw_answer)
    assert story.shown() == story.end.raw_answer
    assert any(warning.startswith("the answer is cut: ") for warning in story.end.warnings)


async def test_the_next_model_answers_instead_of_one_that_breaks_off(plan: Plan, provider: ModelServer) -> None:
    """Once the retries are used up."""
    provider.say(Say(text=CUT_ACTION, finish_reason="abort", times=2), answer(WHOLE))
    story = await (await plan(max_provider_failures=1, fallback_models=[SPARE])).tell()
    assert [failed.then for failed in story.of("model_failed")] == ["retry", "fallback"]
    assert (story.end.raw_answer, story.end.route) == (WHOLE, None)


@pytest.mark.parametrize(
    ("agent", "whole"),
    [
        ({}, action("look", q="x")),
        ({"action_transport": "tools"}, native("look", '{"q": "x"}')),
        ({"strategy": "planned"}, plan_of(WHOLE)),
    ],
)
async def test_an_action_that_is_closed_needs_no_other_end(
    plan: Plan, provider: ModelServer, agent: dict[str, Any], whole: Say
) -> None:
    """Its last brace says that it is whole."""
    closed = Say(**{**vars(whole), "finish_reason": None, "done": False})
    provider.say(closed, answer(WHOLE))
    story = await (await plan(agents={"default": agent})).tell()
    assert story.end.raw_answer == WHOLE
    assert not story.of("model_failed")
    assert not story.of("repaired")


async def test_a_call_that_was_cut_behind_its_name_is_not_made(plan: Plan, provider: ModelServer) -> None:
    """It would be made without its arguments."""
    cut = native("fail", "", finish_reason="abort")
    provider.say(cut, native("final_response", json.dumps({"answer": WHOLE})))
    story = await (await plan(agents={"default": {"action_transport": "tools"}})).tell()
    assert (story.end.raw_answer, story.of("observed")) == (WHOLE, [])
