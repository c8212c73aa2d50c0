"""How many calls of a tool run at once: in one process, and divided among instances."""

import asyncio

from contracts.tools.messages import ToolSpec
from services.tool_runner.limits import Concurrency

TOOL = ToolSpec(name="work", concurrency=64, heartbeat_s=1)


async def test_stored_calls_wait_in_order_and_direct_calls_are_declined() -> None:
    """A stored call gets the place of a direct one that ends; meanwhile no direct call overtakes it."""
    places = Concurrency()
    assert places.take_directly("work", 2, 2)
    await places.take("work", 2)
    assert not places.take_directly("work", 2, 2)
    order: list[str] = []

    async def wait(name: str) -> None:
        await places.take("work", 2)
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    places.give_back("work", direct=True)
    assert not places.take_directly("work", 2, 2)
    await waiting[0]
    assert order == ["first"]
    waiting[1].cancel()
    await asyncio.wait(waiting)
    places.give_back("work")
    places.give_back("work")
    assert places.take_directly("work", 2, 1)
    assert not places.take_directly("work", 2, 1)


async def test_a_cancelled_wait_passes_its_place_on() -> None:
    """Also where it is cancelled at the moment in which it gets the place."""
    places = Concurrency()
    await places.take("work", 1)
    late, next_one = asyncio.create_task(places.take("work", 1)), asyncio.create_task(places.take("work", 1))
    await asyncio.sleep(0)
    places.give_back("work")
    late.cancel()
    await asyncio.wait({late})
    await asyncio.wait_for(next_one, 1)
    places.give_back("work")
    assert places.take_directly("work", 1, 1)
