"""`tool_context` reaches the tools in spite of crashes, and never a listener: it may contain credentials."""

import json
import time
from collections.abc import Iterator

from nats.aio.msg import Msg

from contracts.runs.inbox import CancelRequested
from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client, Frame
from tests.system.model import Plan
from tests.system.system import System

CANARY = "canary-7f3a"
CONTEXT = {"token": CANARY, "large": 2**70}


async def listen(bus: Bus, *patterns: str) -> list[Msg]:
    received: list[Msg] = []

    async def hear(message: Msg) -> None:
        received.append(message)

    for pattern in patterns:
        await bus.nc.subscribe(pattern, cb=hear)
    await bus.barrier()
    return received


def given(calls: list[Msg], run: str) -> Iterator[object]:
    """The contexts with which tools were called in a run."""
    for call in map(json.loads, (message.data for message in calls)):
        if call.get("run_id") == run:
            yield call["context"]


async def test_tools_get_it_and_no_listener_does(system: System, client: Client, bus: Bus) -> None:
    """Before and after a planner is killed; on NATS, on the stream of events, and in what is stored of the run."""
    received = await listen(bus, "run.>", "emit.>")
    calls = await listen(bus, "tool.often")
    plan = Plan(turns=(("often",), ("often",)), call_ms=1500, nth="context")
    run = await client.ask(plan.query, key=plan.nth, tool_context=CONTEXT)
    await wait_until(lambda: list(given(calls, run)), what="the first call")
    planners = system.stack.names("planner")
    for name in planners:
        system.stack.kill(name)
    for name in planners:
        system.stack.spawn(name)
    seen: list[Frame] = []
    end = await client.follow(run, seen)
    assert end["type"] == "done"
    assert list(given(calls, run)) == [CONTEXT, CONTEXT]
    assert received
    stored = await (await bus.reader(subjects.RUNS)).read(subjects.log("default", run))
    for shown in [*(message.data for message in received), *(data for _, data in stored), json.dumps(seen).encode()]:
        assert CANARY.encode() not in shown
    kept = await bus.last(subjects.RUNS, subjects.context("default", run))
    assert kept is not None
    assert CANARY.encode() in kept.data


async def test_nothing_is_kept_of_a_run_that_was_cancelled_before_it_began(bus: Bus) -> None:
    """Its cancel overtakes its request; nobody would purge what had been kept for it."""
    run, now = new_id(), time.time_ns() // 1_000_000
    cancel = CancelRequested().model_dump_json().encode()
    await bus.publish(subjects.control("default", run, "cancel-1"), cancel)
    log = subjects.log("default", run)
    await wait_until(lambda: bus.last(subjects.RUNS, log), what="the run is cancelled")
    # As if the request's first handling had died right after it kept the context.
    await bus.publish(subjects.context("default", run), b"{}")
    request = RunRequested(
        run_id=run, tenant="default", requested_at=now, trace_id=run, query="?", tool_context=CONTEXT
    )
    await bus.publish(subjects.request("default", run), request.model_dump_json().encode(), {"Nats-Msg-Id": run})

    async def gone() -> bool:
        return await bus.last(subjects.RUNS, subjects.context("default", run)) is None

    await wait_until(gone, what="the context is gone")
