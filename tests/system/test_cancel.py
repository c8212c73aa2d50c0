"""A cancel ends a run at once: during a model call, during a tool call, or in the queue of busy planners."""

import asyncio
import time
from functools import partial

import pytest

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client, Frame
from tests.system.conftest import SLOTS
from tests.system.evidence import records
from tests.system.model import Plan
from tests.system.system import System
from tests.system.traces import Event

#: Seconds from the caller's wish to the terminal event.
AT_ONCE = 2.0


async def _cancelled(client: Client, run: str) -> Event:
    """Cancel the run; check that it ends so, soon."""
    began = time.monotonic()
    await client.cancel(run)
    end = await client.follow(run, [])
    took = time.monotonic() - began
    assert end["type"] == "cancelled"
    assert took < AT_ONCE, f"it took {took:.2f} s"
    return end


def _speaks(system: System, plan: Plan) -> bool:
    return any(seen.turns == len(plan.turns) and seen.sent for seen in system.model.asked(plan))


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(tokens=2000, pace_ms=10, nth="cancel-model"), id="streams"),
        # It sends no chunk whose fence could tell: the planner watches the log.
        pytest.param(Plan(delay_ms=30_000, nth="cancel-silent"), id="thinks in silence"),
    ],
)
async def test_cancel_closes_the_model_request(plan: Plan, system: System, client: Client, bus: Bus) -> None:
    """The provider sees its connection closed, and nothing is stored after the end."""
    run = await client.ask(plan.query, key=plan.nth)
    await wait_until(lambda: any(seen.sent or plan.delay_ms for seen in system.model.asked(plan)), what="it is asked")
    await _cancelled(client, run)
    await wait_until(
        lambda: [seen.ended for seen in system.model.asked(plan)] == ["gone"],
        timeout=AT_ONCE,
        what="the request is closed",
    )
    last = (await records(bus, run))[-1]
    assert (last.kind, last.events[-1]["type"]) == ("log", "cancelled")


async def test_cancel_ends_a_run_that_was_never_opened(system: System, client: Client) -> None:
    """Slow models take all slots of all planners, for new runs and for running ones: a cancel waits for none."""
    planners = len(system.stack.names("planner"))
    busy = [
        # These hold the slots of the inbox: their answer follows a call that takes too long to be made directly.
        *(
            Plan(turns=(("often",),), tokens=3000, pace_ms=10, call_ms=1500, nth=f"busy-inbox-{n}")
            for n in range(SLOTS * planners)
        ),
        # These hold the slots of the requests.
        *(Plan(tokens=3000, pace_ms=10, nth=f"busy-request-{n}") for n in range(SLOTS * planners)),
    ]
    runs = []
    for plan in busy:
        runs.append(await client.ask(plan.query, key=plan.nth))
        await wait_until(partial(_speaks, system, plan), timeout=20, what="its answer is on the way")
    waiting = Plan(nth="waiting")
    runs.append(await client.ask(waiting.query, key=waiting.nth))
    assert (await client.status(runs[-1]))["status"] == "queued"
    await _cancelled(client, runs[-1])
    await asyncio.gather(*(_cancelled(client, run) for run in runs[:-1]))
    assert not system.model.asked(waiting)
    # The places are free again.
    seen: list[Frame] = []
    after = Plan(turns=(("often",),), nth="after-busy")
    assert (await client.follow(await client.ask(after.query, key=after.nth), seen))["type"] == "done"
