"""Tools that an agent names and that are not there when a run begins: waited for, and then named."""

import time
from typing import Any

import pytest

from contracts.runs.requests import JobRequested
from services.planner.effects import model_requests
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import tools_at_work

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


@pytest.mark.parametrize("cause", ["job", "call", "user"])
async def test_a_tool_that_the_request_names_is_waited_for_while_it_restarts(
    plan: Plan, provider: ModelServer, nats_server: NatsServer, cause: str
) -> None:
    """The one call of a job is made then, as that of a run whose tool restarts in its middle."""
    planning, (spec, look) = await plan(tools={}), TOOLS["look"]
    provider.say(answer("as it is"))
    name = f"look_for_{cause}"  # One that no earlier test has offered.
    of_call: dict[str, Any] = {} if cause == "user" else {"job": JobRequested(tool=name, args={"q": "north"})}
    run = await planning.ask(cause=cause, tools=[name], **of_call)
    async with tools_at_work(planning, nats_server.url, {name: (spec.model_copy(update={"name": name}), look)}):
        story = await planning.ended(run)
    assert (story.end.type, story.end.warnings) == ("done", []), story.end


@pytest.mark.parametrize(("wait_s", "connected_s"), [(0.3, 0), (600, 3600)])
async def test_a_tool_that_the_request_names_and_that_does_not_come_ends_the_run(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, wait_s: float, connected_s: float
) -> None:
    """With its name: after a while, or at once where the planner has long known that there is none."""
    monkeypatch.setattr(model_requests, "ABSENT_TOOLS_WAIT_S", wait_s)
    planning = await plan(tools={})
    planning.catalogue._bus.up_since -= connected_s
    story = await planning.tell(cause="job", tools=["never"], job=JobRequested(tool="never", args={}))
    assert (story.end.code, "never" in story.end.error) == ("unknown_tool", True)
