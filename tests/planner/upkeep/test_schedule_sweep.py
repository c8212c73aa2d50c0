"""A sweep finds the schedules that have lost their timers."""

from collections.abc import AsyncIterator

import pytest

from contracts.wire.ids import unix_ms
from services.messaging.connection import Bus
from services.planner.upkeep.firing import Schedules
from services.planner.upkeep.schedule_sweep import sweep
from tests.planner.upkeep.written import schedule_of, store, timer_of
from tests.support.gateways import connected
from tests.support.nats_server import NatsServer


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to a server with all streams."""
    async with connected(nats_server.url) as made:
        yield made


async def test_a_sweep_sets_a_missing_timer_and_leaves_the_others(bus: Bus) -> None:
    """Nothing is set twice; a time that has just come is left to its own message."""
    lost, kept = await store(bus, schedule_of()), await store(bus, schedule_of())
    firing, done = await store(bus, schedule_of(at=unix_ms() - 5000)), await store(bus, schedule_of(next_at=None))
    await Schedules(bus).set_timer(kept)
    before = await bus.last_from_leader("TIMERS", f"timer.default.{kept.schedule_id}.fire")
    assert await sweep(bus) >= 1
    assert await timer_of(bus, lost) == lost.next_at
    assert await bus.last_from_leader("TIMERS", f"timer.default.{kept.schedule_id}.fire") == before
    assert [await timer_of(bus, each) for each in (firing, done)] == [None, None]
    restored = await bus.last_from_leader("TIMERS", f"timer.default.{lost.schedule_id}.fire")
    await sweep(bus)
    assert await bus.last_from_leader("TIMERS", f"timer.default.{lost.schedule_id}.fire") == restored
