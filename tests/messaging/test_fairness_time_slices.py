"""Tenants share: however much work one has, the next time slice is another's."""

import asyncio

from services.messaging.fairness import TimeSlice, TimeSlices
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
