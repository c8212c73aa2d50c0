"""Tools with `requires_approval`: nobody can approve a call yet, so none is sent, and the model reads that."""

from typing import Any

import pytest

from contracts import subjects
from contracts.tools import ToolSpec
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Handler, Planning, Story

STEPS = [{"node": "pay", "args": {"sum": 5}}, {"node": "look", "args": {"q": "x"}}, {"node": "pay", "args": {}}]
PAID: list[Any] = []


async def pay(args: dict[str, Any]) -> Any:
    """What must never happen."""
    PAID.append(args)
    return {"text": "paid"}


SPEC = ToolSpec(
    name="pay", description="Transfer money.", side_effects="external", requires_approval=True, idempotent=True
)
BOTH: dict[str, tuple[ToolSpec, Handler]] = {**TOOLS, "pay": (SPEC, pay)}


async def handling(planning: Planning, story: Story, provider: ModelServer, refused: int) -> None:
    """The calls ended as they should, the tool was never asked, nothing was ever sent, and the model knows why."""
    failures = [observed.failure for observed in story.of("observed") if observed.tool == "pay"]
    assert [failure.code for failure in failures] == ["approval_unavailable"] * refused
    assert story.end.raw_answer == "so be it"
    assert "approval_unavailable" in provider.ledger[-1].text
    assert PAID == []
    assert await planning.bus.last(subjects.CALLS, subjects.call("default", story.run, "pay")) is None


async def test_a_call_ends_before_it_is_sent(plan: Plan, provider: ModelServer) -> None:
    """The model reads it in the catalogue before, and in the result after."""
    planning = await plan(BOTH)
    provider.say(action("pay", sum=5), answer("so be it"))
    story = await planning.tell()
    await handling(planning, story, provider, 1)
    assert story.facts() == ["run_started", "asked", "step", "observed", "step", "asked", "step", "step", "done"]
    assert "cannot be given yet" in provider.ledger[0].text


@pytest.mark.parametrize("max_parallel", [1, 8])
async def test_in_a_plan_the_others_run(plan: Plan, provider: ModelServer, max_parallel: int) -> None:
    """However many places there are."""
    planning = await plan(BOTH)
    provider.say(action("plan", steps=STEPS), answer("so be it"))
    story = await planning.tell(limits={"max_parallel": max_parallel})
    await handling(planning, story, provider, 2)
    assert [observed.observation for observed in story.of("observed") if observed.status == "succeeded"] == [
        {"text": "found x"}
    ]


async def test_a_join_is_a_call_too(plan: Plan, provider: ModelServer) -> None:
    """It ends likewise, after its branches; the results go to the model."""
    planning = await plan(BOTH)
    provider.say(action("plan", steps=STEPS[1:2], join={"node": "pay", "args": {}}), answer("so be it"))
    story = await planning.tell()
    await handling(planning, story, provider, 1)
    assert "found x" in provider.ledger[-1].text


async def test_native_calls(plan: Plan, provider: ModelServer) -> None:
    """Also several at once."""
    planning = await plan(BOTH, action_transport="tools")
    calls = [{"name": "pay", "arguments": "{}"}, {"name": "look", "arguments": '{"q": "x"}'}]
    provider.say(
        Say(tool_calls=calls, finish_reason="tool_calls"),
        Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "so be it"}'}]),
    )
    story = await planning.tell()
    await handling(planning, story, provider, 1)
    assert "cannot be given yet" in str(provider.ledger[0].body["tools"])
