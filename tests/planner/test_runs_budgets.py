"""Budgets that bind over whole runs: what ends, what is interrupted, and how a top-up lets a run go on."""

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from contracts.runs.events import Done, Paused, RunEvent
from contracts.runs.inbox import CancelRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.waiting import wait_until

LOOK, FINAL = action("look", q="x"), answer("whole")
USAGE = {"prompt_tokens": 30, "completion_tokens": 10}
PRICED = "openai/gpt-4o"
"""LiteLLM knows its price, and no key is needed for the scripted provider."""


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


async def test_a_price_is_a_budget(plan: Plan, provider: ModelServer) -> None:
    """Where it is known; a model without a price cannot exceed it."""
    provider.say(Say(text=LOOK.text, usage=USAGE))
    planning = await plan(models=[PRICED])
    story = await planning.tell(limits={"max_cost_usd": 0.0001}, model=PRICED)
    stopped(story.end, "max_cost_usd of 0.0001")
    assert len(provider.ledger) == 1
    assert story.end.usage.cost_usd > 0.0001
    stopped((await planning.tell(limits={"max_cost_usd": 0.0001, "max_steps": 3})).end, "max_steps of 3")


@pytest.mark.parametrize(
    "broken", [Say(text="{", usage=USAGE), Say(text='{"next_node": "look", "args": {}}', usage=USAGE)]
)
async def test_a_repair_is_a_call_like_any_other(plan: Plan, provider: ModelServer, broken: Say) -> None:
    """It is not begun when the budget is gone."""
    provider.say(broken)
    story = await (await plan()).tell(limits={"max_tokens": 40})
    stopped(story.end, "max_tokens of 40")
    assert len(provider.ledger) == 1
    assert story.end.usage.prompt_tokens == 30


async def test_what_can_be_salvaged_is_better_than_nothing(plan: Plan, provider: ModelServer) -> None:
    """Prose that nobody may repair any more is the answer."""
    provider.say(Say(text="It is 42.", usage=USAGE))
    story = await (await plan()).tell(limits={"max_tokens": 40})
    assert (story.end.reason, story.end.raw_answer) == ("answer_complete", "It is 42.")
    assert story.shown() == "It is 42."


async def test_the_model_reads_a_note_before_its_budget_ends(plan: Plan, provider: ModelServer) -> None:
    """At the end of the conversation, not in its prefix."""
    provider.say(LOOK, LOOK, answer("enough"))
    await (await plan()).tell(limits={"max_steps": 3})
    notes = [seen.body["messages"][-1]["content"].splitlines()[-1] for seen in provider.ledger]
    assert "Two decisions are left" in notes[1]
    assert "this is your last decision" in notes[2]
    assert len({seen.body["messages"][0]["content"] for seen in provider.ledger}) == 1


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


async def test_a_deadline_interrupts_a_tool(plan: Plan, provider: ModelServer) -> None:
    """The run does not wait for it."""
    began = asyncio.Event()

    async def sleep(_: dict[str, Any]) -> Any:
        began.set()
        await asyncio.sleep(30)

    provider.say(action("slow"))
    story = await (await plan({"slow": (ToolSpec(name="slow"), sleep)})).tell(limits={"deadline_s": 1})
    assert began.is_set()
    stopped(story.end, "deadline_s of 1")
    assert not [each for each in story.of("observed") if each.status == "succeeded"]


async def test_a_run_with_a_grace_waits_for_a_top_up(plan: Plan, provider: ModelServer) -> None:
    """What is given counts from then on; the log tells the whole story."""
    provider.say(LOOK, LOOK, LOOK, FINAL)
    planning = await plan()
    run = await planning.ask(limits={"max_steps": 2, "grace_s": 60})
    story = await planning.until(run, lambda event: event.type == "paused")
    assert (story.end.reason, story.end.budget) == ("budget", "max_steps of 2")
    assert 50_000 < story.end.until - time.time() * 1000 < 61_000
    assert len(provider.ledger) == 2
    await planning.top_up(run, max_steps=2)
    story = await planning.ended(run)
    facts = story.facts()
    assert facts[facts.index("paused") :][:4] == ["paused", "topped_up", "resumed", "asked"]
    assert (story.of("topped_up")[0].limits.max_steps, story.end.raw_answer) == (4, "whole")
    assert story.shown() == "whole"


def is_paused(event: RunEvent, budget: str) -> bool:
    """Whether the run waits for this budget."""
    return isinstance(event, Paused) and event.budget == budget


async def test_a_run_may_be_topped_up_again_and_again(plan: Plan, provider: ModelServer) -> None:
    """And pauses again when that was not enough."""
    provider.say(LOOK, LOOK, FINAL)
    planning = await plan()
    run = await planning.ask(limits={"max_steps": 1, "grace_s": 60})
    for nth in (1, 2):
        await planning.until(run, partial(is_paused, budget=f"max_steps of {nth}"))
        await planning.top_up(run, max_steps=1)
    story = await planning.ended(run)
    assert [paused.budget for paused in story.of("paused")] == ["max_steps of 1", "max_steps of 2"]
    assert story.end.raw_answer == "whole"


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


async def test_a_deadline_that_paused_a_model_lets_it_be_asked_again(plan: Plan, provider: ModelServer) -> None:
    """Under a new attempt; the new deadline holds."""
    provider.say(Say(text=answer("half of it").text, stall_after=12), FINAL)
    planning = await plan()
    run = await planning.ask(limits={"deadline_s": 1, "grace_s": 60})
    story = await planning.until(run, lambda event: event.type == "paused")
    assert story.end.budget == "deadline_s of 1"
    await planning.top_up(run, deadline_s=30)
    story = await planning.ended(run)
    assert [asked.cause for asked in story.of("asked")] == ["turn", "resumed"]
    assert story.shown() == story.end.raw_answer == "whole"
    assert story.of("topped_up")[0].deadline_at > story.of("run_started")[0].deadline_at
    await wait_until(lambda: provider.ledger[0].ended == "gone", what="the first request is closed")


async def test_a_call_that_a_deadline_ended_is_shown_to_the_model(plan: Plan, provider: ModelServer) -> None:
    """Its outcome is recorded, before the pause or in it, and the model decides what to do about it."""

    async def wait(_: dict[str, Any]) -> Any:
        await asyncio.sleep(30)

    provider.say(action("slow"), FINAL)
    planning = await plan({"slow": (ToolSpec(name="slow", timeout_s=60), wait)})
    run = await planning.ask(limits={"deadline_s": 1, "grace_s": 60})
    await planning.until(run, lambda event: event.type == "paused")
    await planning.until(run, lambda event: event.type == "observed")
    await planning.top_up(run, deadline_s=60)
    story = await planning.ended(run)
    assert story.end.raw_answer == "whole"
    assert [each.failure.code for each in story.of("observed")] == ["deadline_passed"]
    assert "deadline_passed" in provider.ledger[-1].text


async def test_nobody_tops_it_up(plan: Plan, provider: ModelServer) -> None:
    """A timer in NATS ends the wait, and the run with what it has."""
    provider.say(LOOK)
    story = await (await plan()).tell(limits={"max_steps": 1, "grace_s": 1})
    stopped(story.end, "max_steps of 1")
    assert story.facts()[-2:] == ["paused", "done"]
    assert story.end.raw_answer == "found x"


async def test_a_paused_run_can_be_cancelled(plan: Plan, provider: ModelServer) -> None:
    """As at any other time; a top-up that comes later changes nothing."""
    provider.say(LOOK)
    planning = await plan()
    run = await planning.ask(limits={"max_steps": 1, "grace_s": 60})
    await planning.until(run, lambda event: event.type == "paused")
    await planning.bus.publish(
        subjects.control("default", run, "cancel"), CancelRequested(reason="no").model_dump_json().encode()
    )
    assert (await planning.ended(run)).end.type == "cancelled"
    await planning.top_up(run, max_steps=9)
    await planning.bus.barrier()
    assert (await planning.ended(run)).end.type == "cancelled"


async def test_a_top_up_before_the_end_extends_the_budget(plan: Plan, provider: ModelServer) -> None:
    """A running run is not disturbed by it."""
    release = asyncio.Event()

    async def wait(_: dict[str, Any]) -> Any:
        await release.wait()
        return {"text": "found"}

    provider.say(action("slow"), FINAL)
    planning = await plan({"slow": (ToolSpec(name="slow"), wait)})
    run = await planning.ask(limits={"max_steps": 1})
    await planning.until(run, lambda event: event.type == "step")
    await planning.top_up(run, max_steps=1)
    await planning.until(run, lambda event: event.type == "topped_up")
    release.set()
    story = await planning.ended(run)
    assert (story.end.raw_answer, story.of("paused"), story.of("resumed")) == ("whole", [], [])


@pytest.mark.parametrize("limits", [{"max_steps": "many"}, {"max_steps": -5}, {"nonsense": 1}, {"deadline_s": "x"}, {}])
async def test_a_top_up_that_makes_no_sense_changes_nothing(
    plan: Plan, provider: ModelServer, limits: dict[str, Any]
) -> None:
    """The gateway refuses it; written to NATS directly it does no harm."""
    provider.say(LOOK, FINAL)
    planning = await plan()
    run = await planning.ask(limits={"max_steps": 1, "grace_s": 3})
    await planning.until(run, lambda event: event.type == "paused")
    await planning.top_up(run, **limits)
    story = await planning.ended(run)
    stopped(story.end, "max_steps of 1")
