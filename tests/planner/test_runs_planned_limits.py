"""Runs of the strategy `planned` that limits, deadlines, people and approvals meet."""

from typing import Any

import pytest

from contracts.runs.events import Observed
from tests.planner.conftest import Plan
from tests.planner.planned_tools import RESEARCH, Tools, planned, write
from tests.support.model_server import ModelServer, Say

LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "max_steps": ({"max_steps": 1}, "max_steps of 1"),
    "max_tool_calls": ({"max_tool_calls": 1}, "max_tool_calls of 1"),
    "max_tokens": ({"max_tokens": 5}, "max_tokens of 5"),
}


@pytest.mark.parametrize("case", LIMITS)
async def test_a_plan_that_the_limits_do_not_carry_runs_nothing(plan: Plan, provider: ModelServer, case: str) -> None:
    """The run ends, and names the limit."""
    limits, named = LIMITS[case]
    tools = Tools()
    provider.say(planned(RESEARCH, write(blog_id="x")), Say(text="Done."))
    story = await (await plan(tools.of())).tell(strategy="planned", limits=limits)
    assert (story.end.type, story.end.reason) == ("done", "budget_exhausted")
    assert any(named in warning for warning in story.end.warnings)
    assert (tools.calls, len(provider.ledger)) == ([], 1)
    assert story.shown() == story.end.raw_answer


@pytest.mark.parametrize("last", [False, True])
async def test_the_deadline_halts_the_plan(plan: Plan, provider: ModelServer, *, last: bool) -> None:
    """The model still answers from what there is; the payload names the deadline."""
    tools = Tools(written=3.0)
    calls = [RESEARCH, write(blog_id="x")] + ([] if last else [RESEARCH])
    provider.say(planned(*calls), Say(text="In part."))
    story = await (await plan(tools.of())).tell(strategy="planned", limits={"deadline_s": 1.5})
    assert (story.end.reason, story.end.raw_answer, story.end.route) == ("budget_exhausted", "In part.", "partial")
    assert any("deadline_s of 1.5" in warning for warning in story.end.warnings)
    assert story.of("step")[3].statuses == ["success", "failed"] + ([] if last else ["not_executed"])
    assert len(provider.ledger) == 2


async def test_an_input_leads_to_a_new_plan(plan: Plan, provider: ModelServer) -> None:
    """A person adds to the question while calls run: the model may need further calls for it."""
    tools = Tools(written=1.0)
    provider.say(
        planned(RESEARCH, write(blog_id="x")),
        planned(RESEARCH),
        Say(text="Done."),
    )
    planning = await plan(tools.of())
    run = await planning.ask(strategy="planned")
    await planning.until(run, lambda event: isinstance(event, Observed))
    await planning.add(run, "And look again.")
    story = await planning.ended(run)
    assert story.end.raw_answer == "Done."
    assert [name for name, _ in tools.calls] == ["research", "write", "research"]
    assert "And look again." in provider.ledger[1].text


@pytest.mark.parametrize("decision", ["approve", "edit"])
async def test_a_person_may_change_arguments_that_hide_values(plan: Plan, provider: ModelServer, decision: str) -> None:
    """The model is told which ones, and reads no value. An approved call counts once."""
    tools = Tools()
    agents = {"careful": {"strategy": "planned", "approvals": [{"name": "w", "tools": ["write"]}]}}
    provider.say(planned(RESEARCH, write(blog_id="$0.output.secret")), Say(text="Written."))
    planning = await plan(tools.of(), agents=agents)
    run = await planning.ask(agent="careful")
    (pause,) = await planning.paused(run)
    edited = {"args": {**(pause.arguments or {}), "text": "short"}} if decision == "edit" else {}
    await planning.decide(pause, run, decision, **edited)
    story = await planning.ended(run)
    assert tools.calls[1] == ("write", {"blog_id": "CANARY", **edited.get("args", {})})
    assert ('["blog_id", "text"]' in provider.ledger[1].text.replace("\\", "")) == bool(edited)
    assert "CANARY" not in provider.ledger[1].text
    assert story.end.usage.tool_calls == len(tools.calls) == 2
