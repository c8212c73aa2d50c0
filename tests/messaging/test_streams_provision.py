"""Streams are created, their settings are checked, and corrected where that can be done in place."""

import asyncio

import pytest

from contracts.runs.inbox import TimerFired
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.errors import Misconfigured
from services.messaging.streams import STREAMS, consumer, ensure_consumer, provision
from services.planner.effects.messages import schedule
from tests.support.waiting import wait_until


async def test_a_setting_that_was_changed_is_put_back(bus: Bus) -> None:
    """An age limit on INBOX would lose accepted runs."""
    wanted = next(config for config in STREAMS if config["name"] == subjects.INBOX)
    await bus.api("STREAM.UPDATE.INBOX", {**wanted, "max_age": 3_600_000_000_000})
    await provision(bus)
    assert (await bus.api("STREAM.INFO.INBOX", {}))["config"].get("max_age", 0) == 0


async def test_a_timer_reaches_inbox_however_late_inbox_finds_timers(bus: Bus) -> None:
    """At its start nats-server may look for TIMERS before it is there, and then again only 12 seconds later."""
    run_id = new_id()
    wanted = next(config for config in STREAMS if config["name"] == subjects.INBOX)
    await bus.api("STREAM.UPDATE.INBOX", {**wanted, "sources": []})
    await schedule(bus, "default", run_id, "retry", TimerFired(timer="retry", at=1), 1)
    await wait_until(lambda: bus.last(subjects.TIMERS, subjects.due("default", run_id, "retry")), what="it fires")
    await bus.publish(subjects.inbox("default", run_id, "x"), b"{}")
    await bus.api("STREAM.PURGE.INBOX", {})
    await provision(bus)
    taken = subjects.control("default", run_id, "retry")
    await wait_until(lambda: bus.last(subjects.INBOX, taken), what="INBOX takes it")


async def test_overlapping_consumers_are_refused_by_name(bus: Bus) -> None:
    """A work queue allows one consumer per filter: a second one raises an error."""
    with pytest.raises(Misconfigured, match="another"):
        await ensure_consumer(bus, subjects.INBOX, consumer("another", subjects.inbox.all, 1))


async def test_processes_may_set_different_limits_at_once(bus: Bus) -> None:
    """The last one holds. Each of them would find the other's, and none of them fails."""
    name, subject = subjects.calls_consumer("shared"), subjects.call.pattern(tool="shared")
    await asyncio.gather(
        *(ensure_consumer(bus, subjects.CALLS, consumer(name, subject, 2, limit)) for limit in [48, 64] * 50)
    )
    found = (await bus.api(f"CONSUMER.INFO.{subjects.CALLS}.{name}", {}))["config"]
    assert found["max_ack_pending"] in {48, 64}
