"""Tenants share time slices and slots; whoever waits longest for a permit is next, and no permit is lost."""

import asyncio

import pytest

from services.gateway.settings import GatewaySettings
from services.messaging.fairness import FairSemaphore, TimeSlice, TimeSlices
from services.messaging.pull_consumer import Shares
from services.planner.settings import PlannerSettings
from tests.support.waiting import wait_until


async def _queue(
    time_slices: TimeSlices, tenant: str, count: int, order: list[str], *, is_new: bool = True
) -> list[asyncio.Task[None]]:
    """Have `count` pieces of work wait for their time slices; `order` says which began."""

    async def work() -> None:
        await time_slices.take(tenant, is_new=is_new)
        order.append(tenant)

    tasks = [asyncio.create_task(work()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_a_newcomer_has_its_turn_before_those_that_wait() -> None:
    """From then on the one that fills the place has one turn at a time."""
    order: list[str] = []
    time_slices = TimeSlices(4)
    crowd = await _queue(time_slices, "a", 100, order)
    await _queue(time_slices, "b", 1, order)
    time_slices.give_back("a")
    await wait_until(lambda: "b" in order, what="b begins")
    assert order == ["a"] * 4 + ["b"]
    for _ in range(3):
        time_slices.give_back("a")
    await wait_until(lambda: len(order) == 6, what="a goes on")
    await _queue(time_slices, "b", 1, order)
    assert order[5:] == ["a"]
    time_slices.give_back("b")
    await wait_until(lambda: order[5:] == ["a", "b"], what="b has its turn, although 95 of a wait")
    for task in crowd:
        task.cancel()


async def test_what_has_begun_goes_before_what_is_new() -> None:
    """Within the line of a tenant."""
    order: list[str] = []
    time_slices = TimeSlices(1)
    await time_slices.take("a", is_new=True)

    async def work(name: str, *, is_new: bool) -> None:
        await time_slices.take("a", is_new=is_new)
        order.append(name)
        time_slices.give_back("a")

    waiting = [asyncio.create_task(work("new", is_new=True)), asyncio.create_task(work("begun", is_new=False))]
    await asyncio.sleep(0)
    time_slices.give_back("a")
    await asyncio.gather(*waiting)
    assert order == ["begun", "new"]


async def test_a_turn_ends_by_itself_and_can_be_taken_again() -> None:
    """What takes long waits for something else; others have their time slices meanwhile."""
    time_slices = TimeSlices(1)
    long, short = TimeSlice(time_slices, "a", is_new=True), TimeSlice(time_slices, "a", is_new=True)
    await long.take()
    await long.take()
    async with asyncio.timeout(5):
        await short.take()
    short.end_soon()
    async with asyncio.timeout(5):
        await long.take()
    long.end()
    long.end()
    short.end()
    await time_slices.take("a", is_new=True)


def _fill(shares: Shares, tenant: str) -> int:
    """Take as many slots as a tenant may have, and return how many."""
    count = 0
    while shares.take(tenant):
        count += 1
    return count


@pytest.mark.parametrize("slots", [8, 16, 2048])
def test_the_next_tenant_finds_free_slots(slots: int) -> None:
    """Those before it took all that they could, one after another."""
    shares = Shares(slots)
    taken = [_fill(shares, f"tenant-{number}") for number in range(2)]
    assert taken[0] == slots // 2 + 1
    assert all(taken)
    assert _fill(shares, "newcomer") > 0


def test_the_open_runs_of_one_tenant_fit_into_its_share_of_one_planner() -> None:
    """By default: so a tenant at its limit takes no slot of another."""
    planner, limit = PlannerSettings(), GatewaySettings().max_open_runs
    assert _fill(Shares(planner.planner_request_slots), "a") > limit
    assert _fill(Shares(planner.planner_slots), "a") > limit


async def test_permits_are_given_in_the_order_of_arrival() -> None:
    """Nobody overtakes one who waits; keys do not share."""
    permits: FairSemaphore[str] = FairSemaphore()
    assert permits.take_now("a", 1)
    assert not permits.take_now("a", 1)
    order: list[str] = []

    async def wait(name: str) -> None:
        assert await permits.wait("a")
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    assert not permits.take_now("a", 1), "two wait for it"
    assert permits.take_now("b", 1)
    permits.give_back("a")
    await waiting[0]
    assert (order, permits.is_waited_for("a")) == (["first"], True)
    permits.give_back("a")
    await waiting[1]
    for key in ("a", "a", "b"):
        permits.give_back(key)
    assert not permits.take_now("c", 0)
    assert not len(permits)


async def test_a_wait_that_ends_early_passes_its_permit_on() -> None:
    """After its time; and where it is cancelled, also at the moment in which it gets the permit."""
    permits: FairSemaphore[str] = FairSemaphore()
    permits.take_now("a", 1)
    assert not await permits.wait("a", within_s=0.01)
    assert not permits.is_waited_for("a")
    late, following = asyncio.create_task(permits.wait("a")), asyncio.create_task(permits.wait("a"))
    await asyncio.sleep(0)
    permits.give_back("a")
    late.cancel()
    await asyncio.wait({late})
    assert await asyncio.wait_for(following, 1)


async def test_a_corrected_number_frees_permits() -> None:
    """Somebody who counts all of them knows better; a number that is forgotten counts nothing."""
    permits: FairSemaphore[str] = FairSemaphore()
    assert [permits.take_now("a", 2) for _ in range(3)] == [True, True, False]
    waiting = asyncio.create_task(permits.wait("a"))
    await asyncio.sleep(0)
    permits.forget_taken()
    permits.correct("a", 1)
    assert await waiting
    permits.forget_taken()
    assert permits.take_now("a", 1)
