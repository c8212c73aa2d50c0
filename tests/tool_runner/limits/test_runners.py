"""Instances of tool_runner know of each other, and divide the limits of tools."""

from contracts.tools.messages import ToolSpec
from services.tool_runner.limits.runners import Runners
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

TOOL = ToolSpec(name="work", concurrency=64, heartbeat_s=1)


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
