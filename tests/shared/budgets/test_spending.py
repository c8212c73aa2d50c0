"""What API keys spend, followed over a real server: at once, and after what was lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.wire import keys
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.budgets import spending
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay, Spending
from tests.support.buses import connected, provisioned
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """The connection of a planner, which writes."""
    async with provisioned(nats_server.url) as made:
        yield made


@pytest.fixture
def where() -> KeyDay:
    """A day of a key of the test's own."""
    return KeyDay("acme", new_id(), "20260131")


async def spend(bus: Bus, where: KeyDay, tokens: int, run: str | None = None) -> None:
    await Bucket(bus, keys.RUNS_BUCKET).put(where.key_of(run or new_id()), Spending(tokens).entry())


async def test_what_others_store_is_known_at_once(bus: Bus, nats_server: NatsServer, where: KeyDay) -> None:
    """From the first question on, which waits for a read; other keys and days do not count."""
    run = new_id()
    await spend(bus, where, 5, run)
    async with connected(nats_server.url) as other:
        follower = KeySpending(other)
        assert follower.known(where) is None
        assert (await follower.current(where)).tokens == 5
        for elsewhere in (where._replace(tenant="other"), where._replace(key_id="b"), where._replace(day="20260130")):
            await spend(bus, elsewhere, 100)
        await spend(bus, where, 7, run)
        await spend(bus, where, 10)
        await wait_until(lambda: (found := follower.known(where)) and found.tokens == 17, what="both are counted")


async def test_after_a_reconnect_a_day_is_read_again(own_nats_server: NatsServer) -> None:
    """What was stored meanwhile is counted, and what is stored later is received again."""
    day = KeyDay("acme", "ci", "20260131")
    async with provisioned(own_nats_server.url) as bus:
        follower = KeySpending(bus)
        await follower.current(day)
        before = bus.up_since
        own_nats_server.kill()
        asking = asyncio.create_task(follower.current(day._replace(key_id="other")))
        own_nats_server.start()
        await wait_until(lambda: bus.up_since != before, what="the connection is made again")
        assert follower.known(day) is None
        async with connected(own_nats_server.url) as other:
            await spend(other, day, 4)
            assert (await follower.current(day)).tokens == 4
            await spend(other, day, 5)
            await wait_until(lambda: (found := follower.known(day)) and found.tokens == 9, what="it is counted")
        assert await asking == Spending()


async def test_memory_is_bounded(bus: Bus, where: KeyDay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The day that was not asked about for longest is forgotten; of one day, runs. Nothing is lost of the sums."""
    monkeypatch.setattr(spending, "MAX_DAYS", 3)
    monkeypatch.setattr(spending, "MAX_RUNS", 5)
    follower, days = KeySpending(bus), [where._replace(key_id=f"{where.key_id}-{number}") for number in range(5)]
    for day in days:
        await spend(bus, day, 7)
        assert (await follower.current(day)).tokens == 7
    assert [*follower._days] == days[2:]
    assert follower._runs == 3
    for _ in range(9):
        await spend(bus, where, 1)
    assert (await follower.current(where)).tokens == 9
    assert [*follower._days] == [*days[3:], where]
    assert follower._runs == sum(len(day.totals.runs) for day in follower._days.values()) <= 5
    assert (await follower.current(days[0])).tokens == 7
