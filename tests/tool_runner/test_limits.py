"""How many calls of a tool run at once: in one process, and divided among instances."""

import asyncio

from contracts.tools.messages import ToolSpec
from services.tool_runner.limits import Concurrency, Runners
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

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


async def test_instances_divide_the_limit_of_a_tool(server: NatsServer) -> None:
    """All of it for one instance; with two, stored calls and the direct calls of both stay within it."""
    async with connected(server.url, "tool_runner") as bus, connected(server.url, "tool_runner") as other_bus:
        runners, other = await Runners(bus).start(), Runners(other_bus)
        assert (runners.count, runners.stored_limit(TOOL), runners.direct_limit(TOOL)) == (1, 64, 64)
        await other.start()
        await wait_until(lambda: runners.count == other.count == 2, what="both know of each other")
        for each in (runners, other):
            assert (each.stored_limit(TOOL), each.direct_limit(TOOL)) == (48, 8)
            assert each.direct_limit(TOOL.model_copy(update={"heartbeat_s": None})) == 0
            assert (each.stored_limit(few := TOOL.model_copy(update={"concurrency": 1})), each.direct_limit(few)) == (
                1,
                0,
            )
        await other.stop()
        await wait_until(lambda: runners.count == 1, what="the other one is gone")
        await runners.stop()
