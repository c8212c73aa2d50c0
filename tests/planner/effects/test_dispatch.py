"""Runs whose tools are called directly: two stored writes a step, and the stored path where a call takes long."""

import asyncio
import time
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from contracts.runs.events import Observed, RunEvent, Step
from contracts.tools.messages import DIRECT_HEADER, CallRequested, ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.planner.effects import call_paths
from tests.planner.conftest import TOOLS, Plan
from tests.support.buses import connected, processed
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, Planning, Story

LOOK, FINAL = action("look", q="x"), answer("whole")


async def records(bus: Bus, run: str, subject: str = "log") -> list[list[RunEvent]]:
    """The stored records of a run's log, or of its stream."""
    of = subjects.log if subject == "log" else subjects.stream
    stored = await (await bus.reader(subjects.RUNS)).read(of("default", run), 1)
    return [Record.model_validate_json(data).events for _, data in stored]


def instances(story: Story) -> set[str | None]:
    """The instances of tool_runner that the calls of a run name."""
    return {call.direct for step in story.of("step") if isinstance(step, Step) for call in step.calls}


async def directly(plan: Plan, **settings: Any) -> Planning:
    """A planner that makes direct calls."""
    planning = await plan(direct=True, **settings)
    await planning.calls_directly()
    return planning


async def stored_calls(bus: Bus) -> int:
    """How many calls CALLS ever held."""
    return int((await bus.api(f"STREAM.INFO.{subjects.CALLS}", {}))["state"]["last_seq"])


async def test_a_run_of_short_calls_is_one_handling(plan: Plan, provider: ModelServer) -> None:
    """Its log has two records a step: the decision, and the outcome with the next request to the model."""
    provider.say(LOOK, LOOK, FINAL)
    planning = await directly(plan)
    before = await stored_calls(planning.bus)
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert None not in instances(story)
    log = [[event.type for event in events] for events in await records(planning.bus, story.run)]
    assert log == [
        ["run_started", "asked"],
        ["step"],
        ["observed", "step", "asked"],
        ["step"],
        ["observed", "step", "asked"],
        ["chunk", "step", "step", "done"],
    ]
    assert await stored_calls(planning.bus) == before


async def test_a_slow_call_goes_on_through_the_stored_queue(plan: Plan, provider: ModelServer) -> None:
    """It is made once, although it is not idempotent; its tool is not called directly for a while."""
    made = 0

    async def work(_: dict[str, Any]) -> Any:
        nonlocal made
        made += 1
        await asyncio.sleep(1.6 if made == 1 else 0)
        return {"made": made}

    tools: dict[str, tuple[ToolSpec, Handler]] = {**TOOLS, "work": (ToolSpec(name="work"), work)}
    provider.say(action("work"), action("work"), FINAL)
    planning = await directly(plan, tools=tools)
    before = await stored_calls(planning.bus)
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert [event.observation for event in story.of("observed") if isinstance(event, Observed)] == [
        {"made": 1},
        {"made": 2},
    ]
    assert len(story.of("call_started")) == 2
    assert await stored_calls(planning.bus) == before + 2
    assert None in instances(story)


async def test_an_instance_that_is_gone_costs_nothing(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody subscribes to its subject: the call goes to CALLS as one that was certainly not begun."""
    monkeypatch.setattr(call_paths, "_MAX_SILENCE_S", 1000)
    provider.say(LOOK, FINAL)
    planning = await directly(plan)
    gone = "f" * 32
    planning.direct_calls._instances = {gone: next(iter(planning.direct_calls._instances.values()))}
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert instances(story) == {gone}
    assert not story.of("call_started")


@pytest.mark.parametrize("begins", [False, True])
async def test_an_instance_that_does_not_answer(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    """Where it has not said that it begins, the call is sent as a new one; else as one that may have begun."""
    monkeypatch.setattr(call_paths, "_MAX_SILENCE_S", 1000)
    provider.say(LOOK, FINAL)
    planning = await directly(plan)
    stopped = "e" * 32

    async def take(message: Msg) -> None:
        if begins:
            await planning.bus.send(message.reply, headers={DIRECT_HEADER: "begun"})

    await planning.bus.subscribe(subjects.direct_call(stopped), take)
    planning.direct_calls._instances = {stopped: time.monotonic()}
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert instances(story) == {stopped}
    assert [event.status for event in story.of("observed")] == ["succeeded"]
    assert bool(story.of("call_started")) == begins


@pytest.mark.parametrize("is_killed", [False, True])
async def test_only_an_instance_without_a_connection_is_not_awaited(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """One that has begun a call and says no more may be slow or stopped. The server knows that a killed one is gone."""
    monkeypatch.setattr(call_paths, "_ANSWER_WITHIN_S", 60.0)
    call = CallRequested(call_id="1", run_id=new_id(), tenant="default", tool="look", args={}, spec="0" * 24, step=1)
    one, probes = new_id(), asyncio.Event()

    async def begin(message: Msg) -> None:
        await instance.publish(message.reply, headers={DIRECT_HEADER: "begun"})

    async def on_probe(_: Msg) -> None:
        probes.set()

    async with connected(own_nats_server.url, "planner") as bus:
        instance = await nats.connect(own_nats_server.url)
        await instance.subscribe(subjects.direct_call(one), cb=begin)
        await instance.subscribe(subjects.direct_status(one), cb=on_probe)
        await processed(instance)
        calls = call_paths.DirectCalls(bus, max_waiting=1)
        waiting = asyncio.create_task(calls.call(one, call))
        await probes.wait()
        probes.clear()
        await probes.wait()
        assert not waiting.done()
        if is_killed:
            await instance.close()
            assert await waiting == "unfinished"
        else:
            waiting.cancel()
            await instance.close()
