"""A prompt that is rendered again from the log is the one that the model was sent, with every strategy."""

from typing import Any

import pytest

from contracts.runs.events import Asked
from contracts.runs.inbox import PromptRequested
from contracts.wire import subjects
from contracts.wire.records import VERSION_HEADER
from services.planner.conversation.encoding import text_parts
from services.planner.effects.model_requests import Prompts
from services.planner.effects.parts import Parts
from services.planner.logs.ownership_watch import Address
from services.runtime.health import VERSION
from tests.planner.conftest import Plan
from tests.planner.planned_tools import native
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Planning, Story

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
