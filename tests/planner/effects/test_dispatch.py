"""Runs whose tools are called directly: two stored writes a step, and the stored path where a call takes long."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.runs.events import Asked, Observed, RunEvent, RunStarted, Step
from contracts.runs.requests import RunLimits, RunRequested
from contracts.tools.messages import DIRECT_HEADER, ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from contracts.wire.records import EVENTS_HEADER, Record
from services.messaging.connection import Bus
from services.planner.effects import bookkeeping, direct_calls, dispatch
from services.planner.run.state.run import Run
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import Handler, Planning, Story
from tests.support.waiting import wait_until

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
    monkeypatch.setattr(direct_calls, "_MAX_SILENCE_S", 1000)
    provider.say(LOOK, FINAL)
    planning = await directly(plan)
    gone = "f" * 32
    planning.direct_calls._instances = {gone: next(iter(planning.direct_calls._instances.values()))}
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert instances(story) == {gone}
    assert not story.of("call_started")


async def test_a_call_is_not_made_directly_a_second_after_its_record(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner was stopped between the two; by then another one may have sent it."""
    monkeypatch.setattr(dispatch, "unix_ms", lambda: unix_ms() + 5000)
    provider.say(LOOK, FINAL)
    planning = await directly(plan)
    before = await stored_calls(planning.bus)
    story = await planning.tell()
    assert story.end.raw_answer == "whole"
    assert None not in instances(story)
    assert await stored_calls(planning.bus) == before + 1
    assert not story.of("call_started")


@pytest.mark.parametrize("begins", [False, True])
async def test_an_instance_that_does_not_answer(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, *, begins: bool
) -> None:
    """Where it has not said that it begins, the call is sent as a new one; else as one that may have begun."""
    monkeypatch.setattr(direct_calls, "_MAX_SILENCE_S", 1000)
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


async def test_an_entry_in_the_index_is_written_after_a_while_or_at_the_end(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the deadline's timer. A run that ends sooner has one entry and never a timer."""
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_S", 60.0)
    provider.say(LOOK, FINAL, replace(FINAL, stall_after=2))
    planning = await directly(plan)

    async def written() -> tuple[int, int]:
        runs = (await planning.bus.api("STREAM.INFO.KV_runs", {}))["state"]["last_seq"]
        timers = (await planning.bus.api(f"STREAM.INFO.{subjects.TIMERS}", {}))["state"]["last_seq"]
        return int(runs), int(timers)

    runs, timers = await written()
    await planning.tell()

    async def is_closed() -> bool:
        return await written() == (runs + 1, timers)

    await wait_until(is_closed, what="the entry of the ended run is written, and nothing else")
    monkeypatch.setattr(bookkeeping, "OPEN_AFTER_S", 0.1)
    run = await planning.ask()

    async def is_open() -> bool:
        return await written() == (runs + 2, timers + 1)

    await wait_until(is_open, what="the entry and the timer of the long run are written")
    provider.release()
    assert (await planning.ended(run)).end.type == "done"


async def is_left_without_timers(bus: Bus, run: str) -> None:
    """Return once a run that has ended is closed; it has no timer then."""
    request, timers = subjects.request("default", run), subjects.timer.pattern(tenant="default", run=run)

    async def is_closed() -> bool:
        return await bus.last_from_leader(subjects.REQUESTS, request) is None

    await wait_until(is_closed, what="the request is acknowledged")
    state = (await bus.api(f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": timers}))["state"]
    assert not state.get("subjects")


async def test_a_handling_that_only_ends_a_run_removes_the_timer_of_an_earlier_one(plan: Plan) -> None:
    """Planners whose clocks were ahead have died in each attempt to ask the model."""
    planning = await directly(plan)
    bus, now, run = planning.bus, unix_ms(), new_id()
    request = RunRequested(run_id=run, tenant="default", requested_at=now, trace_id=new_id(), query="?")
    owner = f"REQUESTS:{int((await bus.api(f'STREAM.INFO.{subjects.REQUESTS}', {}))['state']['last_seq']) + 1}"
    opening = RunStarted(run_id=run, tenant="default", request=request, limits=RunLimits())
    asked = [
        Asked(turn=1, attempt=attempt, by=owner, holder="dead", cause="turn" if attempt == 1 else "lost")
        for attempt in range(1, 7)
    ]
    record = Record(at=now + 10_000, events=[opening, *asked])
    await bus.publish(subjects.log("default", run), record.model_dump_json().encode(), {EVENTS_HEADER: record.types()})
    await bookkeeping.enter(bus, Run(started=opening), opening.request)
    await bus.publish(subjects.request("default", run), request.model_dump_json().encode())
    assert (await planning.ended(run)).end.code == "too_many_attempts"
    await is_left_without_timers(bus, run)
