"""Small schemas that expand to very large ones: refused by name, and no call waits for them."""

from nats.aio.client import Client

from contracts.tools.messages import ToolSpec
from runwire import tool
from services.shared.tools.catalogue import refused_tools
from tests.support.schemas import chained
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start, fault_of, replying
from tests.tool_runner.discovery.conftest import Announce


async def test_an_announced_one_is_refused_by_name(
    planner: Planner, start_runner: Start, serve_tools: Serve, announce: Announce
) -> None:
    """It is listed with the reason as long as it is announced; other tools are found and called meanwhile."""

    @tool
    async def beside(word: str) -> str:
        return word

    service = await announce(ToolSpec(name="endless", input_schema=chained(40)))
    serve_tools(beside)
    await start_runner()

    async def is_refused() -> bool:
        return [each.name for each in await refused_tools(planner.bus)] == ["endless"]

    await wait_until(is_refused, what="the tool is refused")
    (refused,) = await refused_tools(planner.bus)
    assert "input_schema: with its references it expands to more than 50,000 subschemas" in refused.reason
    assert (await planner.call("beside", {"word": "hi"})).observation == "hi"
    assert "endless" not in planner.catalogue.live()
    await service.stop()

    async def is_forgotten() -> bool:
        return not await refused_tools(planner.bus)

    await wait_until(is_forgotten, timeout=30, what="the refused tool is forgotten")


async def test_one_that_a_run_has_pinned_fails_its_call_at_once(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """As specifications do that were written before there were bounds."""
    given = await planner.declare(ToolSpec(name="pinned", input_schema=chained(40)))
    taken = await planner.declare(ToolSpec(name="pinned", output_schema=chained(40, by="oneOf")))
    doubling = chained(3)
    doubling["$defs"]["a0"] = {
        "anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/a2"}}, {"items": {"$ref": "#/$defs/a2"}}]
    }
    by_value = await planner.declare(ToolSpec(name="pinned", input_schema=doubling))

    await client.subscribe("tool.pinned", "pinned", cb=replying(client, b'{"a": 5}'))
    await start_runner(ToolSpec(name="pinned"))
    await planner.spec("pinned")
    deep: object = "x"
    for _ in range(30):
        deep = [deep]

    calls = ((given, 5), (by_value, deep), (taken, 5))
    faults = [fault_of(await planner.call("pinned", {"a": value}, spec=spec)) for spec, value in calls]
    assert [fault.code for fault in faults] == ["invalid_args", "invalid_args", "invalid_result"]
    assert any("expands to more" in fault.reason for fault in faults)
