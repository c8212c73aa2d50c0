"""A process that is frozen past the acknowledgement time and resumes writes and repeats nothing after its successor.

When it wakes, everything that waits in its sockets is handled as if it were new. That it has had its time is known when
it has done further work afterwards, alone.
"""

import asyncio

import pytest

from contracts.wire import subjects
from runwire.serving.stall import STALL_S
from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.evidence import records
from tests.system.model import Plan
from tests.system.sound import follow, judged_sound
from tests.system.system import System
from tests.system.traces import RunEvidence, events_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def _asks(run: RunEvidence) -> list[tuple[int, int, str]]:
    return [
        (event["turn"], event["attempt"], event["cause"])
        for _, event in events_of(run, "log")
        if event["type"] == "asked"
    ]


async def test_a_frozen_planner_is_succeeded_and_stays_silent(system: System, client: Client, bus: Bus) -> None:
    """Frozen while it streams: another one asks again; what the first one has in hand is stored nowhere."""
    plan = Plan(tokens=150, pace_ms=10, nth="freeze-planner")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth))
    await wait_until(lambda: any(seen.sent for seen in system.model.asked(plan)), what="the model speaks")
    frozen = system.planner_of(system.model.asked(plan)[0].headers["authorization"])
    system.stack.freeze(frozen)
    end = await client.follow(run.run_id, run.seen)
    assert end["type"] == "done"
    before = await records(bus, run.run_id)
    system.stack.thaw(frozen)
    for other in system.stack.names("planner"):
        if other != frozen:
            system.stack.kill(other)
    after = await follow(client, Plan(turns=(("often",),), nth="after-freeze-planner"))
    assert await records(bus, run.run_id) == before
    found = await judged_sound(bus, system, run, after)
    assert _asks(found.runs[0]) == [(1, 1, "turn"), (1, 2, "lost")]


@pytest.mark.sample(1)
@pytest.mark.parametrize("tool", ["once", "often"])
async def test_a_frozen_tool_runner_is_succeeded_and_repeats_nothing(
    tool: str, system: System, client: Client, bus: Bus
) -> None:
    """Frozen while its tool works: its successor finds the copy that holds the call, and nothing is done twice."""
    first, second = system.stack.names("tool_runner")
    system.stack.terminate(second)
    plan = Plan(turns=((tool,),), call_ms=700, nth=f"freeze-runner-{tool}")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth))
    await wait_until(lambda: system.executions(run.run_id), what="the tool works")
    system.stack.freeze(first)
    system.stack.spawn(second)
    assert (await client.follow(run.run_id, run.seen))["type"] == "done"
    system.stack.thaw(first)
    system.stack.kill(second)
    after = await follow(client, Plan(turns=((tool,),), nth=f"after-freeze-runner-{tool}"))
    found = await judged_sound(bus, system, run, after)
    assert [event["status"] for _, event in events_of(found.runs[0], "log") if event["type"] == "observed"] == [
        "succeeded"
    ]
    assert len(system.executions(run.run_id)) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("tool", ["once", "often"])
async def test_a_tool_frozen_at_work_is_asked_no_second_time(
    tool: str, system: System, client: Client, bus: Bus
) -> None:
    """Another copy does the call if that is safe; else the model is told that the outcome is unknown.

    The server knows nothing of the frost and may choose the frozen copy each time; then the call fails.
    """
    plan = Plan(turns=((tool,),), call_ms=700, nth=f"freeze-tool-{tool}")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth))
    await wait_until(lambda: system.executions(run.run_id), what="the tool works")
    frozen = next(
        name for name in system.stack.names("tools") if system.stack.pid(name) == system.executions(run.run_id)[0].pid
    )
    system.stack.freeze(frozen)
    assert (await client.follow(run.run_id, run.seen))["type"] == "done"
    system.stack.thaw(frozen)
    for other in set(system.stack.names("tools")) - {frozen}:
        system.stack.kill(other)
    after = await follow(client, Plan(turns=((tool,),), nth=f"after-freeze-tool-{tool}"))
    found = await judged_sound(bus, system, run, after)
    outcomes = [event for _, event in events_of(found.runs[0], "log") if event["type"] == "observed"]
    assert len(outcomes) == 1
    if outcomes[0]["status"] == "succeeded":
        assert tool == "often"
        assert len({each.pid for each in system.executions(run.run_id)}) == 2
    else:
        assert outcomes[0]["failure"]["code"] == {"often": "tool_unavailable", "once": "outcome_unknown"}[tool]
        assert len(system.executions(run.run_id)) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("tool", ["once", "often"])
async def test_a_request_that_a_frozen_tool_never_read_is_not_begun_later(
    tool: str, system: System, client: Client, bus: Bus
) -> None:
    """All instances are frozen when the call arrives, and resume after it was cancelled: none starts it."""
    names = system.stack.names("tools")
    for name in names:
        system.stack.freeze(name)
    plan = Plan(turns=((tool,),), nth=f"unread-{tool}")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth), may_fail=True)
    await client.follow(run.run_id, run.seen)
    for name in names:
        system.stack.thaw(name)
    after = [await follow(client, Plan(turns=((tool,),), nth=f"after-unread-{tool}-{n}")) for n in range(3)]
    await judged_sound(bus, system, run, *after)
    assert system.executions(run.run_id) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("tool", ["once", "often"])
async def test_a_call_of_a_run_that_ended_is_not_begun_even_if_its_tool_runner_sleeps(
    tool: str, system: System, client: Client, bus: Bus
) -> None:
    """The request waits in the socket of a frozen tool, and its tool runner is frozen too: the planner cancels it."""
    tools, runners = system.stack.names("tools"), system.stack.names("tool_runner")
    for name in tools:
        system.stack.freeze(name)
    overheard = await bus.nc.subscribe(subjects.tool(tool))
    await bus.barrier()
    plan = Plan(turns=((tool,),), nth=f"asleep-{tool}")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth), cancelled_by_client=True)
    await overheard.next_msg(timeout=20)
    for name in runners:
        system.stack.freeze(name)
    await client.cancel(run.run_id)
    assert (await client.follow(run.run_id, run.seen))["type"] == "cancelled"
    await asyncio.sleep(2 * STALL_S)  # A shorter stop is no stop.
    for name in tools:
        system.stack.thaw(name)
    await asyncio.sleep(STALL_S)  # Time to begin it, before the tool runners could call it off.
    for name in runners:
        system.stack.thaw(name)
    after = [await follow(client, Plan(turns=((tool,),), nth=f"after-asleep-{tool}-{n}")) for n in range(3)]
    await overheard.unsubscribe()
    await judged_sound(bus, system, run, *after)
    assert system.executions(run.run_id) == []


async def test_a_frozen_gateway_goes_on_where_it_stopped(system: System, client: Client, bus: Bus) -> None:
    """Its clients get everything that was stored meanwhile, once and in order."""
    plan = Plan(turns=(("often",), ("often",)), tokens=40, pace_ms=5, call_ms=300, nth="freeze-gateway")
    run = RunEvidence(await client.ask(plan.query, key=plan.nth))
    following = asyncio.create_task(client.follow(run.run_id, run.seen))
    await wait_until(lambda: run.seen, what="the client has seen something")
    system.stack.freeze("gateway-1")

    async def ended() -> bool:
        return any(event["type"] == "done" for record in await records(bus, run.run_id) for event in record.events)

    await wait_until(ended, timeout=20, what="the run has ended")
    system.stack.thaw("gateway-1")
    assert (await following)["type"] == "done"
    await judged_sound(bus, system, run)
