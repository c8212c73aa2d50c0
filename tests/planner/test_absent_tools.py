"""Tools that an agent names and that are not there when a run begins: waited for, and then named."""

import time

import pytest

from services.planner.effects import model_requests
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, answer

AGENTS = {"helper": {"tools": ["look", "late"]}, "waiting": {"tools": ["look", "never"]}}


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
