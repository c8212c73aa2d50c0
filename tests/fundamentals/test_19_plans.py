"""A run may plan all its calls first. They run in order without the model, and a second request is for the answer."""

import json
from typing import Any

from runwire import Client
from runwire.events import Observed, Step
from tests.fundamentals.conftest import answer_in, noted, restart
from tests.support.model_server import ModelServer, Say
from tests.support.stack import Stack

RESEARCH = {"tool_name": "research_blog", "arguments": {"topic": "AI trends 2025", "skill_id": "research_blog"}}
WRITING = {"skill_id": "blog_writing", "instructions": "Focus on practical applications"}


def plan(*calls: dict[str, Any]) -> Say:
    """A reply that plans these calls. `__planning__` is the one function that the model is offered."""
    written = {"type": "tool_calls", "reasoning": "This is the way.", "calls": calls}
    return Say(tool_calls=[{"name": "__planning__", "arguments": json.dumps(written)}])


def call(tool_name: str, **arguments: Any) -> dict[str, Any]:
    """A call of a plan."""
    return {"tool_name": tool_name, "arguments": arguments}


async def steps(client: Client, run_id: str) -> list[str]:
    """Node and status of each step, as they ended."""
    seen = [event async for event in client.follow(run_id) if isinstance(event, Step)]
    return [f"{event.node} {event.status}" for event in seen if event.status != "started"]


async def test_a_later_call_takes_what_an_earlier_one_returned(client: Client, model: ModelServer) -> None:
    """By a template, which names a field of that call's result. Two requests to the model are all."""
    post = call("create_blog_post", artifact_id="$0.output.artifact_id", **WRITING)
    model.say(plan(RESEARCH, post), Say(text="Here is your post."))
    run = await client.chat("Write a post", agent="planning", tool_context={"blog_id": "abc-123"})
    assert answer_in(run) == "Here is your post."
    assert len(model.ledger) == 2
    assert await steps(client, run.run_id) == ["plan succeeded", "execute succeeded", "respond succeeded"]

    told = model.ledger[1].text
    assert "from abc-123" in told, "the second tool was given the id, and says so"
    assert "tools" not in model.ledger[1].body, "the answer cannot call tools any more"


async def test_without_tools_one_request_is_enough(client: Client, model: ModelServer) -> None:
    """The plan is the answer."""
    written = {"type": "direct_response", "content": "Good morning!"}
    model.say(Say(tool_calls=[{"name": "__planning__", "arguments": json.dumps(written)}]))
    run = await client.chat("Good morning", agent="planning")
    assert answer_in(run) == "Good morning!"
    assert len(model.ledger) == 1


async def test_a_plan_with_an_error_runs_nothing(client: Client, model: ModelServer) -> None:
    """Not even the calls before it. The model reads what is wrong, and answers."""
    post = call("create_blog_post", artifact_id="$0.output.artifactId", **WRITING)
    model.say(plan(RESEARCH, post), Say(text="I could not plan that."))
    run = await client.chat("Write a post", agent="planning")
    assert (answer_in(run), run.usage and run.usage.tool_calls) == ("I could not plan that.", 0)
    assert await steps(client, run.run_id) == ["plan invalid", "respond succeeded"]
    assert 'research_blog has no output field \\"artifactId\\"' in model.ledger[1].text


async def test_a_plan_can_be_checked_without_a_run(client: Client) -> None:
    """Each error has one line, which says where it is and what to do."""
    post = call("create_blog_post", artifact_id="$0.output.artifact_id", **WRITING)
    assert (await client.check_plan({"calls": [RESEARCH, post]})).valid
    report = await client.check_plan({"calls": [post, RESEARCH]})
    [line] = report.lines
    assert line.startswith("Call 0 (create_blog_post), argument artifact_id: template $0.output.artifact_id")
    assert line.endswith("only the output of an earlier call can be used")


async def test_the_first_failure_halts_the_plan(client: Client, model: ModelServer, stack: Stack, session: str) -> None:
    """Nothing that comes later is done, and the model answers from what there is."""
    model.say(
        plan(call("count_inhabitants", city="Atlantis"), call("post_postcard", recipient=session)), Say(text="No.")
    )
    run = await client.chat("Count them, and write", agent="planning", session_id=session)
    assert answer_in(run) == "No."
    [ended] = [event async for event in client.follow(run.run_id) if isinstance(event, Step) and event.statuses]
    assert ended.statuses == ["failed", "not_executed"]
    assert "Atlantis is not in the register" in (ended.halt_reason or "")
    assert noted(stack, "postcards", run.run_id) == []


async def test_a_person_sees_the_whole_plan(client: Client, model: ModelServer) -> None:
    """Before a call that needs an approval: what it would do exactly, and what it is a part of."""
    model.say(
        plan(call("count_inhabitants", city="Porto"), call("pay", euros=500), call("take_nap", seconds=0)),
        Say(text="I did not pay."),
    )
    run = await client.chat("Count them, and pay", agent="planning")
    [pause] = run.pauses
    assert (pause.tool, pause.arguments, pause.payload["call"]) == ("pay", {"euros": 500}, 1)
    assert [each["tool_name"] for each in pause.payload["plan"]["calls"]] == ["count_inhabitants", "pay", "take_nap"]

    await client.reject(pause, note="not this month")
    ended = await client.result(run.run_id)
    assert answer_in(ended) == "I did not pay."
    assert "not this month" in model.ledger[1].text


async def test_a_plan_goes_on_though_its_planner_dies(client: Client, model: ModelServer, stack: Stack) -> None:
    """With the next call. No call is made twice, and no model is asked again."""
    model.say(
        plan(call("post_postcard", recipient="Ann"), call("take_nap", seconds=2), call("take_nap", seconds=0)),
        Say(text="All done."),
    )
    run_id = await client.start("Write to Ann, then rest", agent="planning")
    async for event in client.follow(run_id):
        if isinstance(event, Observed):
            break
    restart(stack, "planner-1")
    run = await client.result(run_id)
    assert answer_in(run) == "All done."
    assert len(model.ledger) == 2
    assert len(noted(stack, "postcards", run_id)) == 1
