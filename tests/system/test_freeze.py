"""A process that is frozen past the acknowledgement time and resumes writes and repeats nothing after its successor.

When it wakes, everything that waits in its sockets is handled as if it were new. That it has had its time is known when
it has done further work afterwards, alone.
"""

import pytest

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.evidence import records
from tests.system.model import Plan
from tests.system.sound import follow, judged_sound
from tests.system.system import System
from tests.system.traces import RunEvidence


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
    asked = [(event["turn"], event["attempt"], event["cause"]) for event in found.runs[0].of("asked")]
    assert asked == [(1, 1, "turn"), (1, 2, "lost")]


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
