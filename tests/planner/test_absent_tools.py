"""Tools that an agent names and that are not there when a run begins: waited for, and then named."""

import asyncio
import time

import pytest

from services.planner.effects import model_requests
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import tools_at_work

AGENTS = {"helper": {"tools": ["look", "late"]}, "waiting": {"tools": ["look", "never"]}}
LATE = TOOLS["look"][0].model_copy(update={"name": "late"})


async def test_a_tool_that_starts_just_now_is_waited_for(
    plan: Plan, provider: ModelServer, nats_server: NatsServer
) -> None:
    """It was asked for before it was there."""
    planning = await plan(agents=AGENTS)
    provider.say(action("late", q="x"), answer("found"))
    run = asyncio.create_task(planning.tell(agent="helper"))
    await asyncio.sleep(0.3)
    async with tools_at_work(planning, nats_server.url, {"late": (LATE, TOOLS["look"][1])}):
        story = await run
    assert (story.end.raw_answer, story.end.warnings) == ("found", [])
    assert story.of("observed")[0].tool == "late"


async def test_a_tool_that_does_not_come_is_named(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on without it, after a while; a run that may not use it waits for nothing."""
    monkeypatch.setattr(model_requests, "ABSENT_TOOLS_WAIT_S", 1.0)
    planning = await plan(agents=AGENTS)
    provider.say(answer("as it is"))
    began = time.monotonic()
    story = await planning.tell(agent="waiting")
    assert time.monotonic() - began >= 1.0
    assert story.end.warnings == ["the tool never is not there: the run goes on without it"]
    assert (await planning.tell(agent="waiting", tools=["look"])).end.warnings == []
