"""Plans through the client, at a gateway without a planner."""

import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from runwire import Client, RunwireError
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.gateways import Served
from tests.support.waiting import wait_until

FIND = ToolSpec(name="find", output_schema={"properties": {"id": {"type": "string"}}})
CALLS = [{"tool_name": "find"}, {"tool_name": "find", "arguments": {"x": "$0.output.id"}}]


async def test_a_plan_is_checked(served: Served, bus: Bus) -> None:
    """By the tools that are present, or some of them; with outputs its templates are resolved."""
    await Bucket(bus, keys.CATALOGUE_BUCKET).put(keys.live_tool("find"), FIND)
    async with Client(served.url) as client:

        async def is_known() -> bool:
            return [tool.name for tool in await client.tools()] == ["find"]

        await wait_until(is_known, what="the gateway knows the tool")
        found = await client.check_plan({"calls": CALLS}, outputs=[{"id": "7"}])
        assert (found.valid, found.kind, found.resolved) == (True, "tool_calls", [{}, {"x": "7"}])
        assert (await client.check_plan({"calls": CALLS})).resolved is None
        limited = await client.check_plan({"type": "tool_calls", "calls": CALLS}, tools=())
        assert [error.error.type for error in limited.errors] == ["unknown_tool", "unknown_tool"]
        assert len(limited.lines) == 2
        with pytest.raises(RunwireError) as refused:
            await client.check_plan({}, tools=["gone"])
        assert [each["field"] for each in refused.value.errors] == ["tools.0"]
