"""Whole runs whose calls need an approval or whose tools ask people, and planners that die after a decision."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id
from runwire import ToolContext, tool
from runwire.serving import serve
from tests.planner.conftest import TOOLS, Plan
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, Planning, planning, tools_at_work
from tests.support.waiting import wait_until

SUM = {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 1000}}, "required": ["sum"]}
SPEC = ToolSpec(
    name="pay",
    description="Transfer money.",
    input_schema=SUM,
    side_effects="external",
    requires_approval=True,
    idempotent=True,
)
STEPS = [{"node": "pay", "args": {"sum": 5}}, {"node": "look", "args": {"q": "x"}}]


def paying(paid: list[Any], **changes: Any) -> dict[str, tuple[ToolSpec, Handler]]:
    """The tools, with one that pays and needs an approval."""

    async def pay(args: dict[str, Any]) -> Any:
        paid.append(args)
        return {"text": f"paid {args['sum']}"}

    return {**TOOLS, "pay": (SPEC.model_copy(update=changes), pay)}


async def test_a_policy_asks_again_about_edited_arguments(plan: Plan, provider: ModelServer) -> None:
    """The old token is worth nothing then."""
    paid: list[Any] = []
    rule = {"name": "payments", "tools": ["pay"], "arguments": {"properties": {"sum": {"minimum": 4}}}}
    agents = {"default": {"approvals": [{**rule, "reapprove_edits": True}]}}
    planning = await plan(paying(paid, requires_approval=False), agents=agents)
    provider.say(action("plan", steps=[STEPS[0], {"node": "pay", "args": {"sum": 1}}]), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    assert (pause.rule, pause.source) == ("payments", "policy")
    assert (await planning.decide(pause, run, "edit", args={"sum": 7})).code is None
    pauses = await planning.paused(run, 2)
    assert (pauses[1].pause_id, pauses[1].revision, pauses[1].arguments) == (pause.pause_id, 2, {"sum": 7})
    assert (await planning.decide(pause, run, "approve")).code == "pause_changed"
    assert (await planning.decide(pauses[1], run, "approve")).code is None
    await planning.ended(run)
    assert sorted(each["sum"] for each in paid) == [1, 7]


async def test_the_message_of_an_approved_call(plan: Plan, provider: ModelServer) -> None:
    """It bears the approval and the rules, so that tool_runner can check the call by itself."""
    paid: list[Any] = []
    agents = {"default": {"approvals": [{"name": "all", "tools": ["*"]}]}}
    planning = await plan(paying(paid), agents=agents)
    provider.say(action("pay", sum=5), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    sent: list[CallRequested] = []

    async def note(message: Any) -> None:
        sent.append(CallRequested.model_validate_json(message.data))

    subscription = await planning.bus.subscribe(subjects.call("default", run, "pay"), note)
    await planning.bus.barrier()
    await planning.decide(pause, run, "approve")
    await planning.ended(run)
    await subscription.stop()
    assert sent[0].approval is not None
    assert (sent[0].approval.pause_id, sent[0].approval.digest) == (pause.pause_id, pause.digest)
    assert [rule.name for rule in sent[0].approval_rules] == ["all"]


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
        assert (pause.title, pause.payload) == ("Which seat?", {"flight": "RW1"})
        assert (pause.reason, pause.source) == ("input", "tool")
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
