"""A tool whose schema expands without end: the run that calls it gets a failure, and no other run notices."""

import asyncio
from typing import Any

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, action, answer
from tests.support.schemas import chained


async def anything(args: dict[str, Any]) -> Any:
    """Answer with the arguments."""
    return args


async def test_a_run_that_calls_it_goes_on(plan: Plan, provider: ModelServer) -> None:
    """Alone and in a plan. The specification is one that was pinned before there were bounds."""
    endless = ToolSpec(name="endless", description="Do it.", input_schema=chained(40))
    steps = [{"node": "look", "args": {"q": "x"}}, {"node": "endless", "args": {"a": 5}}]
    provider.by_turn(action("endless", a=5), action("plan", steps=steps), answer("without it"), marker="hostile")
    provider.by_turn(answer("at once"), marker="innocent")
    planning = await plan({**TOOLS, "endless": (endless, anything)})

    run = await planning.ask("hostile", limits={"deadline_s": 30})
    others = await asyncio.gather(*(planning.tell("innocent") for _ in range(3)))
    story = await planning.ended(run)

    assert {other.end.raw_answer for other in others} == {"at once"}
    assert (story.end.type, story.end.raw_answer) == ("done", "without it")
    alone, in_a_plan = story.of("repaired")
    assert "its input schema is invalid (with its references it expands to more than 50,000 subschemas" in alone.reason
    assert "cannot be checked" in in_a_plan.reason
