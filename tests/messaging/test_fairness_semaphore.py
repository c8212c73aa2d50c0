"""Permits by key: who waits longest is next, and no permit is lost."""

import asyncio

from services.messaging.fairness import FairSemaphore


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
