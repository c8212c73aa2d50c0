"""Calls over NATS: floods, and parts that are lost."""

import asyncio

from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.tools import ToolSpec
from tests.tool_runner.conftest import Planner, Start


async def test_a_tool_that_floods_fails_its_own_call_only(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """And a reply of an unknown kind is a sign of life."""

    async def flood(message: Msg) -> None:
        for _ in range(40):
            await client.publish(message.reply, b"x" * (1 << 20), headers={"Runwire-Reply": "part"})

    async def answer(message: Msg) -> None:
        await client.publish(message.reply, b"{}", headers={"Runwire-Reply": "of the future"})
        await asyncio.sleep(0.05)
        await message.respond(b"1")

    await client.subscribe("tool.flood", "flood", cb=flood)
    await client.subscribe("tool.calm", "calm", cb=answer)
    await start_runner(ToolSpec(name="flood"), ToolSpec(name="calm"), max_result_bytes=8 << 20)

    flooded, calm = await asyncio.gather(planner.call("flood", {}), planner.call("calm", {}))

    assert flooded.failure is not None
    assert flooded.failure.code == "result_too_large"
    assert calm.observation == 1


async def test_lost_parts_are_requested_once(planner: Planner, start_runner: Start, client: Client) -> None:
    """The instance that holds the result sends it again; otherwise the call fails."""

    async def incomplete(message: Msg) -> None:
        await client.publish(message.reply, b"12", headers={"Runwire-Reply": "part"})
        await client.publish(message.reply, b"", headers={"Runwire-Reply": "result", "Runwire-Parts": "2"})

    async def complete(message: Msg) -> None:
        for part in (b"12", b"34"):
            await client.publish(message.reply, part, headers={"Runwire-Reply": "part"})
        await client.publish(message.reply, b"", headers={"Runwire-Reply": "result", "Runwire-Parts": "2"})

    for name in ("lossy", "torn"):
        await client.subscribe(f"tool.{name}", name, cb=incomplete)
    await client.subscribe("tool.lossy.status", cb=complete)
    await start_runner(ToolSpec(name="lossy"), ToolSpec(name="torn"))

    assert (await planner.call("lossy", {})).observation == 1234
    torn = await planner.call("torn", {})
    assert torn.failure is not None
    assert torn.failure.code == "invalid_result"
