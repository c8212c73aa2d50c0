"""Budgets that bind over whole runs: what ends, what is interrupted, and how a top-up lets a run go on."""

from functools import partial
from typing import Any

import pytest

from contracts.runs.events import Asked, Done, RunEvent
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.waiting import wait_until

LOOK, FINAL = action("look", q="x"), answer("whole")
USAGE = {"prompt_tokens": 30, "completion_tokens": 10}


def stopped(end: Any, budget: str) -> None:
    """The run has ended since a budget was spent, which a warning names, with the last result."""
    assert isinstance(end, Done)
    assert (end.reason, end.route) == ("budget_exhausted", "partial")
    assert any(budget in warning for warning in end.warnings), end.warnings


@pytest.mark.parametrize(
    ("limits", "budget", "calls"),
    [
        ({"max_steps": 2}, "max_steps of 2", 2),
        ({"max_tokens": 41}, "max_tokens of 41", 2),
        ({"max_tool_calls": 1}, "max_tool_calls of 1", 1),
        ({"max_tool_calls": 0}, "max_tool_calls of 0", 0),
    ],
)
async def test_a_budget_ends_a_run_with_what_it_has(
    plan: Plan, provider: ModelServer, limits: dict[str, Any], budget: str, calls: int
) -> None:
    """One call more than the budget at most; the last observation is the answer."""
    provider.say(Say(text=LOOK.text, usage=USAGE))
    story = await (await plan()).tell(limits=limits)
    stopped(story.end, budget)
    assert story.shown() == story.end.raw_answer
    assert story.end.usage.tool_calls == calls == len(story.of("observed"))
    assert story.end.raw_answer == ("found x" if calls else "No answer produced.")


@pytest.mark.parametrize(
    "hanging",
    [
        Say(silent=True),
        Say(text=FINAL.text, reasoning=words(50), stall_after=8),
        Say(text=answer(words(40)).text, stall_after=12),
    ],
)
async def test_a_deadline_interrupts_a_model(plan: Plan, provider: ModelServer, hanging: Say) -> None:
    """Its request is closed, and what it had said is taken back."""
    provider.say(LOOK, hanging)
    story = await (await plan()).tell(limits={"deadline_s": 1})
    stopped(story.end, "deadline_s of 1")
    assert story.end.raw_answer == story.shown() == "found x"
    await wait_until(lambda: provider.ledger[-1].ended == "gone", what="the model's request is closed")


def _is_asked_by(stream: str, event: RunEvent) -> bool:
    return isinstance(event, Asked) and event.by.startswith(stream)


async def test_a_deadline_ends_a_run_while_all_model_slots_are_taken(plan: Plan, provider: ModelServer) -> None:
    """The run waits for its provider, and other runs stream meanwhile."""
    planner = await plan(planner_slots=1, planner_request_slots=1)
    slow = Say(text=answer(words(40)).text, pause_s=1)
    provider.say(Say(status=429, headers={"retry-after": "60"}), marker="the first")
    provider.say(action("look", q="x"), slow, slow)
    first = await planner.ask("the first", limits={"deadline_s": 4})
    await planner.until(first, lambda event: event.type == "model_failed")
    for asked_by in ("INBOX", "REQUESTS"):  # Once a tool has answered, the model is called for a message of INBOX.
        other, is_asked = await planner.ask("another"), partial(_is_asked_by, asked_by)
        await planner.until(other, is_asked)
    story = await planner.ended(first, wait_s=10)
    assert (story.end.type, story.end.reason) == ("done", "budget_exhausted")
    assert story.end.warnings == ["budget exhausted: deadline_s of 4"]


@pytest.mark.parametrize(
    ("limits", "more"),
    [
        ({"max_tokens": 40}, {"max_tokens": 100}),
        ({"max_tool_calls": 0}, {"max_tool_calls": 5}),
        ({"max_steps": 1}, {"max_steps": 5}),
    ],
)
async def test_every_budget_can_be_topped_up(
    plan: Plan, provider: ModelServer, limits: dict[str, Any], more: dict[str, Any]
) -> None:
    """Calls that were not begun for want of a budget are asked for anew."""
    provider.say(Say(text=LOOK.text, usage=USAGE), Say(text=LOOK.text, usage=USAGE), FINAL)
    planning = await plan()
    run = await planning.ask(limits={**limits, "grace_s": 60})
    await planning.until(run, lambda event: event.type == "paused")
    await planning.top_up(run, **more)
    assert (await planning.ended(run)).end.raw_answer == "whole"
