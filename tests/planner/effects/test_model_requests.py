"""Prompts that are rendered again are those that the model was sent; tools that are not there are waited for."""

import time
from typing import Any

import pytest

from contracts.runs.events import Asked
from contracts.runs.inbox import PromptRequested
from contracts.runs.requests import JobRequested
from contracts.wire import subjects
from contracts.wire.records import VERSION_HEADER
from services.planner.conversation.encoding import text_parts
from services.planner.effects import model_requests
from services.planner.effects.model_requests import Prompts
from services.planner.effects.parts import Parts
from services.planner.logs.ownership_watch import Address
from services.runtime.health import VERSION
from tests.planner.conftest import TOOLS, Plan
from tests.planner.planned_tools import native
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, Story, tools_at_work

BROKEN = Say(text="{")
PROPOSED = native({"type": "tool_calls", "calls": [{"tool_name": "look", "arguments": {"q": "x"}}]})


def parts_of(planning: Planning) -> Parts:
    """What the planner's handlings share."""
    assert planning.planner is not None
    return planning.planner._parts


async def prompts_of(planning: Planning, story: Story) -> list[dict[str, Any]]:
    """The prompts of all model calls of a run, rendered again."""
    parts = parts_of(planning)
    prompts = Prompts(parts.bus, parts.logs, parts.model_requests)
    found = []
    for asked in (event for event in story.events if isinstance(event, Asked)):
        place = {"turn": asked.turn, "part": asked.part, "attempt": asked.attempt}
        prompt = await prompts.rendered(PromptRequested(tenant="default", run_id=story.run, **place))
        assert prompt is not None
        assert (prompt.rendered_by, prompt.asked_by) == (VERSION, VERSION)
        found.append(prompt.model_dump())
    return found


def texts(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Roles and texts of a request, however a provider wants them framed."""
    return [
        (message["role"], "".join(part["text"] for part in text_parts(message["content"])))
        for message in request["messages"]
    ]


@pytest.mark.parametrize(
    ("strategy", "replies"),
    [("react", [action("look", q="x"), BROKEN, answer("whole")]), ("planned", [PROPOSED, Say(text="whole")])],
)
async def test_it_is_what_the_model_was_sent(
    plan: Plan, provider: ModelServer, strategy: str, replies: list[Say]
) -> None:
    """Turn by turn, with the complaint about a broken reply."""
    provider.say(*replies)
    planning = await plan(agents={"default": {"strategy": strategy}})
    story = await planning.tell("what?")
    rendered = await prompts_of(planning, story)
    assert [texts(prompt) for prompt in rendered] == [texts(seen.body) for seen in provider.ledger]
    assert len(rendered) == len(replies)


async def test_there_is_no_other(plan: Plan, provider: ModelServer) -> None:
    """Of a run that is not there, or of a turn that it did not have. Each record says which version wrote it."""
    provider.say(answer("whole"))
    planning = await plan()
    story = await planning.tell("what?")
    parts = parts_of(planning)
    for place in ((1, 0, 2), (2, 0, 1), (0, 0, 0)):
        assert await parts.logs.as_asked(Address("default", story.run), place) is None
    log = await (await parts.bus.reader(subjects.RUNS)).messages(subjects.log("default", story.run))
    assert {(message.headers or {})[VERSION_HEADER] for message in log} == {VERSION}


AGENTS = {"waiting": {"tools": ["look", "never"]}}


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
