"""Discovery of tools, and the catalogue that lists them."""

import asyncio
import json

import nats.micro
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request

from contracts import keys, subjects
from contracts.tools import ToolSpec
from runwire import tool
from services.tool_runner.discovery import catalogue_writer
from tests.support.catalogue import STREAM, key_subject
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start


async def test_a_tool_of_any_micro_library_is_found(planner: Planner, start_runner: Start, client: Client) -> None:
    """The specification is a text in the metadata of its endpoint; calls are answered as any request is."""

    async def on_call(request: Request) -> None:
        await request.respond(json.dumps(json.loads(request.data)["args"]).encode())

    service = await nats.micro.add_service(client, name="parrot", version="0.1.0")
    spec = ToolSpec(name="parrot", description="Say it again")
    await service.add_endpoint(
        name="parrot", subject="tool.parrot", handler=on_call, metadata={"runwire.spec": spec.model_dump_json()}
    )
    await start_runner()

    finished = await planner.call("parrot", {"word": "hello"})

    assert planner.catalogue.live()["parrot"].description == "Say it again"
    assert finished.observation == {"word": "hello"}
    await service.stop()


async def test_an_error_of_a_micro_library_is_a_failure(planner: Planner, start_runner: Start, client: Client) -> None:
    """Its text reaches the model."""

    async def on_call(message: Msg) -> None:
        await client.publish(
            message.reply, b"", headers={"Nats-Service-Error": "out of paper", "Nats-Service-Error-Code": "500"}
        )

    await client.subscribe("tool.printer", "printer", cb=on_call)
    await start_runner(ToolSpec(name="printer"))

    finished = await planner.call("printer", {})

    assert finished.failure is not None
    assert (finished.failure.code, finished.failure.reason) == ("tool_error", "out of paper")


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

    pinned = await planner.bus.last(STREAM, key_subject(keys.spec_key(spec.digest())))
    alive = await planner.bus.last(STREAM, key_subject(keys.tool_key("mayfly")))
    assert pinned is not None
    assert alive is not None
    assert "Nats-TTL" not in (pinned.headers or {})
    assert (alive.headers or {})["Nats-TTL"] == str(catalogue_writer.TTL_S)
    assert int((pinned.headers or {})["Nats-Sequence"]) < int((alive.headers or {})["Nats-Sequence"])
    assert await planner.catalogue.spec(spec.digest()) == spec


async def test_a_new_version_takes_over(planner: Planner, start_runner: Start, serve_tools: Serve) -> None:
    """As soon as one instance of it is present; the consumer gets its concurrency."""

    @tool(name="greet", version="1.9.0", concurrency=2)
    async def old() -> str:
        return "hello"

    @tool(name="greet", version="1.10.0", desc="Greet better", concurrency=5)
    async def new() -> str:
        return "good morning"

    serve_tools(old)
    await start_runner()
    await planner.spec("greet")

    serve_tools(new)
    await wait_until(
        lambda: planner.catalogue.live()["greet"].description == "Greet better", what="the new version counts"
    )

    found = await planner.bus.api(f"CONSUMER.INFO.{subjects.CALLS}.{subjects.calls_consumer('greet')}", {})
    assert found["config"]["max_ack_pending"] == 5


async def test_an_invalid_announcement_is_a_dead_letter_once(
    planner: Planner, start_runner: Start, serve_tools: Serve, client: Client
) -> None:
    """Whatever a service replies to `$SRV.INFO`; other tools are not affected."""
    asked = asyncio.Event()

    async def on_question(message: Msg) -> None:
        for answer in (b"", b"{", b"\xff", b'{"endpoints": [{"metadata": {"runwire.spec": "{}"}}]}'):
            await message.respond(answer)
        asked.set()

    @tool
    async def bystander() -> int:
        return 1

    await client.subscribe("$SRV.INFO", cb=on_question)
    serve_tools(bystander)
    await start_runner()
    await asked.wait()

    assert (await planner.call("bystander", {})).observation == 1

    async def all_kept() -> bool:
        return len(await planner.dead_letters("ANNOUNCED")) == 4

    await wait_until(all_kept, what="the four are kept")
    asked.clear()
    await asked.wait()
    assert await all_kept()


async def test_names_that_mean_something_to_the_planner_are_allowed(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """A tool may be called `plan`; the planner shows it under an alias."""

    @tool
    async def plan() -> str:
        return "done"

    serve_tools(plan)
    await start_runner()

    assert (await planner.call("plan", {})).observation == "done"
