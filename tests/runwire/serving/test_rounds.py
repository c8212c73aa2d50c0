"""Served tools that ask a person: a round ends with the reply `pause`, the next one brings the answer."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from runwire import Tool, ToolContext, tool

from .conftest import Caller, Serve, call

ANSWERS = [{"number": 0, "decision": "answer", "input": "window"}]
executed: list[int] = []


@tool
async def choose(ctx: ToolContext) -> str:
    """Ask in a coroutine."""
    executed.append(ctx.state.setdefault("rounds", 0))
    ctx.state["rounds"] += 1
    return await ctx.pause("input", schema=str, title="Which seat?")


@tool
def choose_plainly(ctx: ToolContext) -> str:
    """Ask in a thread."""
    return ctx.pause("input", schema=str, title="Which seat?").value


@tool
async def choose_in_a_group(ctx: ToolContext) -> str:
    """Ask in a task of a group."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ask(ctx))
    return task.result()


@tool
async def swallow(ctx: ToolContext) -> str:
    """Catch everything."""
    try:
        return await ask(ctx)
    except BaseException:  # noqa: BLE001, what a tool must not do
        return "no answer"


async def ask(ctx: ToolContext) -> str:
    """Ask from another function."""
    return await ctx.pause("input", schema=str, title="Which seat?")


@pytest.mark.parametrize("asking", [choose, choose_plainly, choose_in_a_group])
async def test_a_pause_ends_a_round_and_an_answer_begins_the_next(
    client: Client, serving: Serve, asking: Tool[..., Any]
) -> None:
    """Under the same idempotency key. A repeated request of either round gets the reply that it had."""
    executed.clear()
    await serving(asking)
    for _ in range(2):
        kind, pause = await call(client, asking.name, {}, key="k1", understands_pause=True)
        assert (kind, pause["number"], pause["title"]) == ("pause", 0, "Which seat?")
    for _ in range(2):
        answered = {"round": 1, "answers": ANSWERS, "state": pause["state"], "understands_pause": True}
        assert await call(client, asking.name, {}, key="k1", **answered) == ("result", "window")
    assert executed in ([], [0, 1]), "each round ran once, the second with the state of the first"


async def test_a_status_request_is_about_one_round(client: Client, serving: Serve) -> None:
    """A cancel too: one of the first round that comes late does not end the second."""
    await serving(choose)
    await call(client, "choose", {}, key="k2", understands_pause=True)
    first, second = [await Caller(client).start() for _ in range(2)]
    await second.query("tool.choose.status", "k2", 1)
    await first.query("tool.choose.status", "k2")
    assert (await first.end())[0] == "pause"
    assert second.replies == []


async def test_a_caller_that_cannot_wait_gets_a_failure(client: Client, serving: Serve) -> None:
    """An older tool_runner, for example, would take the reply for a heartbeat."""
    await serving(choose)
    kind, failure = await call(client, "choose", {})
    assert (kind, failure["code"]) == ("failure", "pause_unsupported")


async def test_a_tool_that_catches_its_pause_fails(client: Client, serving: Serve) -> None:
    """Its caller would take what it returns for the result."""
    await serving(swallow)
    kind, failure = await call(client, "swallow", {}, understands_pause=True)
    assert (kind, failure["code"]) == ("failure", "invalid_pause")
    assert "must let that exception pass" in failure["reason"]
