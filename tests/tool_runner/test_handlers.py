"""One outcome for each call, whatever the tool does. The tutorial of this service: read it from the top."""

import asyncio
import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel, Field

from contracts.runs.events import ArtifactChunk, ToolProgress
from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from runwire import ToolContext, tool
from services.tool_runner.call_consumers import Concurrency

from .conftest import Planner, Serve, Start, fault_of, replying


class Sales(BaseModel):
    """A result with a part that only people see."""

    total: int
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "sales"})


async def test_a_tool_answers(planner: Planner, start_runner: Start, serve_tools: Serve) -> None:
    """A call goes to the tool and its result into the run's inbox; then the call is gone."""

    @tool(desc="Add two numbers", idempotent=True)
    async def add(a: int, b: int) -> int:
        return a + b

    serve_tools(add)
    await start_runner()

    finished = await planner.call("add", {"a": 1, "b": 2})

    assert (finished.status, finished.observation, finished.failure) == ("succeeded", 3, None)
    await planner.acknowledged("add")


async def test_progress_and_pieces_are_published_on_the_runs_stream(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """In order. The model does not see fields that are annotated as artifacts."""

    @tool(idempotent=True)
    async def draw_sales(ctx: ToolContext) -> Sales:
        await ctx.progress("half", 0.5)
        await ctx.emit_artifact(stream_id="sales", chunk={"bars": 1}, artifact_type="echarts")
        await ctx.emit_artifact(stream_id="sales", chunk={"bars": 2}, done=True)
        return Sales(total=7, chart={"bars": [1, 2]})

    serve_tools(draw_sales)
    await start_runner()

    run = await planner.request("draw_sales", {})
    finished = await planner.outcome(run)

    progress, first, second = await planner.shown(run)
    assert isinstance(progress, ToolProgress)
    assert (progress.message, progress.fraction) == ("half", 0.5)
    assert isinstance(first, ArtifactChunk)
    assert (first.seq, first.chunk, first.artifact_type, first.tool) == (0, {"bars": 1}, "echarts", "draw_sales")
    assert isinstance(second, ArtifactChunk)
    assert (second.seq, second.done) == (1, True)
    assert finished.observation == {"total": 7, "chart": "<artifact:dict stream=sales>"}
    assert finished.artifacts == {"chart": {"bars": [1, 2]}}


async def test_arguments_are_checked_before_the_tool_is_called(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """The failure names the wrong argument and the reason."""
    called = []

    @tool
    async def halve(n: int) -> float:
        called.append(n)
        return n / 2

    serve_tools(halve)
    await start_runner()

    finished = await planner.call("halve", {"n": "four", "m": 1})

    assert fault_of(finished).code == "invalid_args"
    assert "n: " in fault_of(finished).reason
    assert "'m'" in fault_of(finished).reason
    assert not called


async def test_a_tool_without_an_sdk(planner: Planner, start_runner: Start, client: Client) -> None:
    """A plain subscriber: it gets a request and answers with JSON.

    It is declared, since it does not announce itself.
    """

    async def on_call(message: Msg) -> None:
        call = json.loads(message.data)
        await message.respond(json.dumps({"said": call["args"]["text"], "to": call["context"]["user"]}).encode())

    await client.subscribe("tool.echo_plain", "echo_plain", cb=on_call)
    await start_runner(ToolSpec(name="echo_plain", idempotent=True))

    finished = await planner.call("echo_plain", {"text": "hello"}, context={"user": "ada"})

    assert finished.observation == {"said": "hello", "to": "ada"}


async def test_calls_of_one_tool_run_at_the_same_time_up_to_its_concurrency(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """As many as its specification says, over all instances."""
    running = 0
    most = 0

    @tool(concurrency=3)
    async def busy() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return most

    serve_tools(busy)
    await start_runner()

    run = await planner.open_run()
    await asyncio.gather(*(planner.request("busy", {}, run=run, call_id=f"1-{number}") for number in range(12)))
    for number in range(12):
        await planner.outcome(run, f"1-{number}")

    assert most == 3


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


async def test_a_tool_that_starts_a_little_late_is_waited_for(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """A rolling restart is no failure. Nobody received the request, so any call may be sent again."""
    await start_runner(ToolSpec(name="latecomer"))
    run = await planner.request("latecomer", {})
    await planner.started(run)
    await client.subscribe("tool.latecomer", "latecomer", cb=replying(client, b"1"))

    assert (await planner.outcome(run)).observation == 1


async def test_a_tool_that_starts_after_the_call_was_settled_is_not_called(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """Another tool runner found no instance that holds the call, and settled it a moment ago."""
    await start_runner(ToolSpec(name="settled"))
    run = await planner.request("settled", {})
    await planner.started(run)
    settled = CallFinished(
        call_id="1-0", tool="settled", status="failed", failure=Fault(code="outcome_unknown", reason="lost")
    )
    await planner.bus.publish(
        subjects.inbox("default", run, "1-0"), settled.model_dump_json().encode(), {"Nats-Msg-Id": f"{run}.1-0"}
    )
    requests = await client.subscribe(subjects.tool("settled"))
    await planner.acknowledged("settled")
    assert requests.pending_msgs == 0
