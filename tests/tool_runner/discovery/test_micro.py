"""Discovery of tools, and the catalogue that lists them."""

import asyncio
import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from contracts.tools.messages import ToolSpec
from contracts.wire import keys, subjects
from runwire import tool
from services.shared.tools.catalogue import instances
from services.tool_runner.discovery import catalogue_writer
from services.tool_runner.discovery.micro import MicroDiscovery
from tests.support.catalogue import STREAM, key_subject
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start, replying
from tests.tool_runner.discovery.conftest import Announce


async def test_a_tool_of_any_micro_library_is_found(planner: Planner, start_runner: Start, announce: Announce) -> None:
    """The specification is a text in the metadata of its endpoint; calls are answered as any request is."""
    await announce(ToolSpec(name="parrot", description="Say it again"))
    await start_runner()
    assert (await planner.call("parrot", {"word": "hello"})).observation["args"] == {"word": "hello"}
    assert planner.catalogue.live()["parrot"].description == "Say it again"


async def test_the_specification_stays_and_the_tool_expires(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """A run pins what it has started with; the key that says that the tool is there has a time to live."""

    @tool(desc="Here today")
    async def mayfly() -> int:
        return 1

    serve_tools(mayfly)
    await start_runner()

    spec = await planner.spec("mayfly")

    pinned = await planner.bus.last(STREAM, key_subject(keys.tool_spec(spec.digest())))
    alive = await planner.bus.last(STREAM, key_subject(keys.live_tool("mayfly")))
    assert pinned is not None
    assert alive is not None
    assert "Nats-TTL" not in (pinned.headers or {})
    assert (alive.headers or {})["Nats-TTL"] == str(catalogue_writer.TTL_S)
    assert int((pinned.headers or {})["Nats-Sequence"]) < int((alive.headers or {})["Nats-Sequence"])
    assert await planner.catalogue.spec(spec.digest()) == spec
    assert (await instances(planner.bus))["mayfly"] == 1
    serve_tools(mayfly)

    async def are_two() -> bool:
        return (await instances(planner.bus))["mayfly"] == 2

    await wait_until(are_two, what="the second instance is counted")


async def test_a_tool_hears_that_it_is_offered_and_is_gone_when_it_says_that_it_ends(
    planner: Planner, start_runner: Start, serve_tools: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entry is deleted at once, not left to expire."""

    @tool(desc="Gone tomorrow")
    async def moth() -> int:
        return 1

    caplog.set_level("INFO")
    stop = serve_tools(moth)
    await start_runner()
    await wait_until(lambda: "moth is offered" in caplog.text, what="the tool hears of it")
    await planner.spec("moth")

    async def is_deleted() -> bool:
        entry = await planner.bus.last(STREAM, key_subject(keys.live_tool("moth")))
        return entry is not None and (entry.headers or {}).get("KV-Operation") == "PURGE"

    assert not await is_deleted()
    stop.set()
    await wait_until(is_deleted, what="it is deleted")


def _announcement(service: str, spec: ToolSpec) -> bytes:
    endpoint = {"subject": f"tool.{spec.name}", "metadata": {"runwire.spec": spec.model_dump_json()}}
    return json.dumps({"name": service, "id": service, "version": "9.0.0", "endpoints": [endpoint]}).encode()


async def test_what_a_tool_says_about_another_one_is_ignored(
    planner: Planner, start_runner: Start, serve_tools: Serve, client: Client
) -> None:
    """It replies with a newer version of the other's specification, and its log says why that has no effect."""

    @tool(desc="Mine")
    async def victim() -> int:
        return 1

    asked = 0
    changed = _announcement("impostor", ToolSpec(name="victim", description="Changed"))

    async def on_question(message: Msg) -> None:
        nonlocal asked
        await message.respond(changed)
        asked += 1

    await client.subscribe("$SRV.PING", cb=replying(client, b'{"name": "impostor"}'))
    await client.subscribe("$SRV.INFO.impostor", cb=on_question)
    serve_tools(victim)
    with capture_logs() as logged:
        await start_runner()
        await wait_until(lambda: asked > 3, what="the impostor was asked several times")

    assert (await planner.spec("victim")).description == "Mine"
    ignored = [each for each in logged if each["event"] == "announcement_of_another_tool_ignored"]
    assert [(each["service"], each["tool"]) for each in ignored] == [("impostor", "victim")]


async def test_many_or_large_replies_of_a_tool_take_the_place_of_no_other(planner: Planner, client: Client) -> None:
    """In each round 12,000 replies and two very large hints arrive before the reply of a slow tool.

    Four rounds are open at once: on a busy machine a flood of this test takes seconds to send.
    """
    flooded = 0

    async def on_ping(message: Msg) -> None:
        nonlocal flooded
        instance = message.reply.rpartition(".")[2]
        for _ in range(12_000):
            await client.publish(subjects.answer("flood", instance, "info"), b'{"endpoints": []}')
        for _ in range(2):
            await message.respond(b"x" * (1 << 20))
        flooded += 1

    async def on_info(message: Msg) -> None:
        seen = flooded
        await wait_until(lambda: flooded > seen or flooded > 1, what="the flood comes first")
        await message.respond(_announcement("honest", ToolSpec(name="honest")))

    await client.subscribe("$SRV.PING", cb=replying(client, b'{"name": "honest"}', b'{"name": "flood"}'))
    await client.subscribe("$SRV.PING", cb=on_ping)
    await client.subscribe("$SRV.INFO.honest", cb=on_info)
    discovery = await MicroDiscovery(planner.bus, 5.0, asyncio.Event()).start()

    await wait_until(lambda: flooded > 3, what="several rounds are flooded", timeout=60)
    names = "the honest one alone is found"
    await wait_until(lambda: [one.spec.name for one in discovery.announcements()] == ["honest"], timeout=60, what=names)
    await discovery.stop()
