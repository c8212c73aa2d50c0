"""Whole runs whose tools ask people, and planners that die between a decision and what follows it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from contracts.wire.names import new_id
from runwire import ToolContext, tool
from runwire.serving import serve
from tests.planner.conftest import Plan
from tests.planner.test_runs_approvals import STEPS, paying
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning, tools_at_work
from tests.support.waiting import wait_until

executed: list[tuple[str, int]] = []


@tool
async def book_seat(flight: str, ctx: ToolContext) -> str:
    """Book a seat."""
    executed.append((ctx.idempotency_key, len(ctx.state)))
    ctx.state["held"] = flight
    seat = await ctx.pause("input", {"flight": flight}, schema=str, title="Which seat?")
    meal = await ctx.pause("input", schema=str, title="Which meal?", expires=timedelta(seconds=1), default="none")
    return f"{seat} with {meal} on {ctx.state['held']}"


@contextlib.asynccontextmanager
async def serving(url: str, planner: Planning) -> AsyncIterator[None]:
    """The tool, once the planner knows it."""
    stop = asyncio.Event()
    served = asyncio.create_task(serve([book_seat], url, stop=stop, grace_s=0.1))
    await wait_until(lambda: "book_seat" in planner.catalogue.live(), what="the planner knows the tool")
    yield
    stop.set()
    await served


async def test_a_tool_asks_twice(plan: Plan, provider: ModelServer, nats_server: NatsServer) -> None:
    """A person answers once, and the second pause expires with a given answer. The function runs three times."""
    executed.clear()
    planner = await plan({})
    async with serving(nats_server.url, planner):
        provider.say(action("book_seat", flight="RW1"), answer("so be it"))
        run = await planner.ask()
        [pause] = await planner.paused(run)
        assert (pause.title, pause.payload, pause.reason, pause.source) == (
            "Which seat?",
            {"flight": "RW1"},
            "input",
            "tool",
        )
        assert (await planner.decide(pause, run, "answer", input=7)).code == "invalid_input"
        assert (await planner.decide(pause, run, "answer", input="12A")).code is None
        story = await planner.ended(run)
    assert [resumed.by for resumed in story.of("resumed")] == ["", "timer"]
    assert "12A with none on RW1" in provider.ledger[-1].text
    assert [size for _, size in executed] == [0, 1, 1]
    assert len({key for key, _ in executed}) == 1
    assert [call.round for called in story.of("called") for call in called.calls] == [1, 2]


@pytest.mark.sample(2)
@pytest.mark.parametrize("moment", ["before", "stored", "known"])
@pytest.mark.parametrize("what", ['"type":"resumed"', '"type":"called"'], ids=["the decision", "the call"])
async def test_a_planner_killed_after_a_decision(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, what: str, moment: str
) -> None:
    """The approved call is made once, whichever record was the last one of the planner that died."""
    url, paid = own_nats_server.url, list[Any]()
    provider.say(action("plan", steps=STEPS), answer("so be it"))
    async with planning(url, provider) as planner, tools_at_work(planner, url, paying(paid)):
        run = await client.ask()
        [pause] = await client.paused(run)
        await client.until(run, lambda event: event.type == "observed")
    dying = DyingPlanner(url, provider.url, what, moment)
    deciding = asyncio.create_task(client.decide(pause, run, "approve", id=new_id()))
    await dying.dead()
    async with planning(url, provider) as planner, tools_at_work(planner, url, paying(paid)):
        story = await planner.ended(run, 60)
        assert (await deciding).code is None
    assert paid == [{"sum": 5}]
    assert [resumed.digest for resumed in story.of("resumed")] == [pause.digest]
    assert len(story.of("paused")) == 1
