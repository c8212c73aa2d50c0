"""Whole runs that ask for background tasks: real planner and NATS. The test stands in for nobody but the model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts import ids, subjects
from contracts.inbox import CallFinished
from contracts.tasks import SessionTaskCalled
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Planning
from tests.support.waiting import wait_until

AGENTS = {"default": {"tasks": {"spawn_requires_confirmation": False}, "limits": {"max_tokens": 100_000}}}
SPAWN = {"mode": "subagent", "query": "how far is the moon?", "name": "moon", "group": "distances"}


@asynccontextmanager
async def session_calls(planning: Planning) -> AsyncIterator[list[SessionTaskCalled]]:
    """The calls that runs send to their sessions meanwhile."""
    found: list[SessionTaskCalled] = []

    async def take(message: Msg) -> None:
        if json.loads(message.data)["kind"] == "task_call":
            found.append(SessionTaskCalled.model_validate_json(message.data))

    subscription = await planning.bus.nc.subscribe("session_inbox.>", cb=take)
    await planning.bus.barrier()
    yield found
    await subscription.unsubscribe()


def native(function: str, /, **args: Any) -> Say:
    """A reply that is one native tool call."""
    return Say(tool_calls=[{"name": function, "arguments": json.dumps(args)}])


REPLIES = {
    "json": ({}, action("task", **SPAWN), answer("It has begun.")),
    "legacy": (
        {"action_format": "legacy"},
        Say(text=json.dumps({"thought": "far", "next_node": "task", "args": SPAWN, "plan": None, "join": None})),
        Say(text=json.dumps({"thought": "", "next_node": None, "args": {"answer": "It has begun."}})),
    ),
    "tools": ({"action_transport": "tools"}, native("task", **SPAWN), native("final_response", answer="It has begun.")),
}


@pytest.mark.parametrize("form", REPLIES)
async def test_a_spawn_is_sent_to_the_session(plan: Plan, provider: ModelServer, form: str) -> None:
    """With the request of the task's run. The session's answer is an outcome like a tool's."""
    settings, spawn, end = REPLIES[form]
    planning = await plan(agents=AGENTS, **settings)
    provider.say(spawn, end)
    async with session_calls(planning) as called:
        run = await planning.ask(tool_context={"secret": "s"}, user_id="u")
        [call] = await wait_until(lambda: called, what="the session is called")
        outcome = CallFinished(
            call_id="1-1", tool="task.spawn", status="succeeded", observation={"task_id": ids.task_id(run, "1-1")}
        )
        subject = subjects.inbox("default", run, "1-1")
        await planning.bus.publish(subject, outcome.model_dump_json().encode())
        story = await planning.ended(run)
    assert story.end.raw_answer == "It has begun."
    [step] = [step for step in story.of("step") if step.node == "task" and step.status == "started"]
    [planned] = step.calls
    assert planned.set_aside.max_tokens > 10_000
    assert (call.action, call.session_id, call.args["group"]) == ("spawn", ids.own_session_id(run), "distances")
    child = call.child
    assert child is not None
    assert (child.run_id, child.query, child.parent) == (ids.task_id(run, "1-1"), SPAWN["query"], run)
    assert (child.tool_context, child.user_id) == ({"secret": "s"}, "u")
    assert child.limits["max_tokens"] == planned.set_aside.max_tokens
    assert "HUMAN_GATED" in provider.ledger[0].text
    assert ids.task_id(run, "1-1") in provider.ledger[-1].text


async def test_where_tasks_are_not_allowed_nothing_is_said_of_them(plan: Plan, provider: ModelServer) -> None:
    """Neither the prompt nor a repair note names them, and a task of full depth may have none."""
    agents = {"default": {}, "deep": AGENTS["default"]}
    planning = await plan(agents=agents)
    cases: list[dict[str, Any]] = [{}, {"agent": "deep", "depth": 2}, {"agent": "deep", "hops": 2}]
    for asked in cases:
        provider.reset()
        provider.say(action("task", **SPAWN), Say(text="{"), answer("so be it"))
        story = await planning.tell(**asked)
        assert story.of("run_started")[0].tasks is None
        assert "not available" in story.of("repaired")[0].reason
        assert "task" not in provider.ledger[0].text.lower()
        assert "task" not in story.of("repaired")[1].reason


async def test_the_tools_for_tasks(plan: Plan, provider: ModelServer) -> None:
    """They are called like tools, in plans too, and go to the session under names with a dot."""
    planning = await plan(agents=AGENTS)
    steps = [{"node": "tasks_list", "args": {}}, {"node": "look", "args": {"q": "x"}}]
    wrong = action("tasks_status", task_id="t", group_id="g")
    provider.say(wrong, action("plan", steps=steps), answer("so be it"))
    async with session_calls(planning) as called:
        run = await planning.ask(session_id="s")
        [call] = await wait_until(lambda: called, what="the session is called")
        outcome = CallFinished(call_id="1-1", tool="tasks.list", status="succeeded", observation={"tasks": []})
        subject = subjects.inbox("default", run, "1-1")
        await planning.bus.publish(subject, outcome.model_dump_json().encode())
        story = await planning.ended(run)
    assert "tasks_status" in story.of("repaired")[0].reason
    assert (call.action, call.session_id, call.child) == ("list", "s", None)
    assert {event.tool for event in story.of("observed")} == {"tasks.list", "look"}
    assert '"tool":"tasks_list"' in provider.ledger[-1].text.replace("\\", "")
