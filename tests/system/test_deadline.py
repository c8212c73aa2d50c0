"""A run's deadline ends it with what it has, in the model as well as in a tool."""

import pytest

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.conftest import SLOTS
from tests.system.evidence import records
from tests.system.model import Plan
from tests.system.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

#: Seconds after the deadline until the run has ended.
SOON = 1.5


async def _ends_soon_after(client: Client, bus: Bus, run: str) -> None:
    end = await client.follow(run, [])
    assert (end["type"], end.get("reason"), end.get("route")) == ("done", "budget_exhausted", "partial")
    assert any("deadline_s" in warning for warning in end["warnings"])
    log = [record for record in await records(bus, run) if record.kind == "log"]
    late = log[-1].at - log[0].events[0]["deadline_at"] / 1000
    assert 0 <= late < SOON, f"ended {late:.2f} s after the deadline"


async def test_deadline_during_a_model_call(system: System, client: Client, bus: Bus) -> None:
    """The model's request is closed."""
    plan = Plan(delay_ms=30_000, nth="deadline-model")
    run = await client.ask(plan.query, key=plan.nth, limits={"deadline_s": 1})
    await _ends_soon_after(client, bus, run)
    await wait_until(
        lambda: [seen.ended for seen in system.model.asked(plan)] == ["gone"], timeout=2, what="the request is closed"
    )


async def test_deadline_during_a_tool_call(system: System, client: Client, bus: Bus) -> None:
    """The call is not waited for, and no further one is made."""
    plan = Plan(turns=(("stoppable",), ("often",)), call_ms=30_000, nth="deadline-tool")
    run = await client.ask(plan.query, key=plan.nth, limits={"deadline_s": 2})
    await _ends_soon_after(client, bus, run)
    assert {each.key.split("/")[0] for each in system.executions(run)} == {f"{run}.1-1"}


async def test_deadline_while_all_places_are_taken(system: System, client: Client, bus: Bus) -> None:
    """Slow models hold every place for running runs: the deadline of one of them waits behind none."""
    planners = len(system.stack.names("planner"))
    busy = [Plan(turns=(("often",),), delay_ms=3000, nth=f"deadline-busy-{n}") for n in range(SLOTS * planners)]
    runs = [await client.ask(plan.query, key=plan.nth, limits={"deadline_s": 5}) for plan in busy]
    for run in runs:
        await _ends_soon_after(client, bus, run)
