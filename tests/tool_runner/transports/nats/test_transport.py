"""Calls over NATS: floods, and parts that are lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel
from structlog.testing import capture_logs

from contracts.tools.messages import ToolCall, ToolSpec
from contracts.wire import subjects
from runwire import ToolContext, tool
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start


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


def _replying(answer: bytes) -> Callable[[Msg], Awaitable[None]]:
    async def reply(message: Msg) -> None:
        await message.respond(answer)

    return reply


async def test_no_tool_replies_in_place_of_another(planner: Planner, start_runner: Start, client: Client) -> None:
    """The name of the tool is in the reply subject, where only the tool may publish."""

    async def answer(message: Msg) -> None:
        _, _, instance, key = message.reply.split(".")
        for other in ("other", "tru", "true"):
            await client.publish(f"answer.{other}.{instance}.{key}", b"1")
        await client.publish(f"answer.true.{instance}.{key}", b"2")
        await message.respond(b"3")

    await client.subscribe("tool.true_one", "true_one", cb=answer)
    await client.subscribe("tool.other", "other", cb=_replying(b"4"))
    await start_runner(ToolSpec(name="true_one"), ToolSpec(name="other"))
    assert (await planner.call("other", {})).observation == 4

    assert (await planner.call("true_one", {})).observation == 3


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"x" * (7 << 20), {"Runwire-Reply": "progress"}),
        (b"{}", {"Runwire-Reply": "heartbeat"} | {f"Header-{number}": "x" for number in range(200)}),
        (b"{}", {"Runwire-Reply": "x" * (100 << 10)}),
    ],
    ids=["data", "many headers", "a long header"],
)
async def test_a_tool_is_cut_off_at_its_first_reply_that_no_tool_sends(
    planner: Planner, start_runner: Start, client: Client, data: bytes, headers: dict[str, str]
) -> None:
    """A few more of that size would fill what the server keeps for the connection, and it would close it."""

    async def answer(message: Msg) -> None:
        await client.publish(message.reply, data, headers=headers)

    await client.subscribe("tool.large", "large", cb=answer)
    await start_runner(ToolSpec(name="large"))
    with capture_logs() as logged:
        finished = await planner.call("large", {})

    assert finished.failure is not None
    assert [each["replies"] for each in logged if each["event"] == "tool_flooded"] == [1]


async def test_a_tool_that_floods_with_small_replies_is_cut_off(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """The server delivers nothing of it for a second; its calls fail, and later ones work."""
    calls = 0

    async def flood(message: Msg) -> None:
        nonlocal calls
        calls += 1
        for number in range(40_000 if calls == 1 else 0):
            await client.publish(message.reply, b"{}", headers={"Runwire-Reply": "heartbeat"})
            if number % 500 == 0:
                await client.flush()
        await message.respond(b"1")

    await client.subscribe("tool.flooding", "flooding", cb=flood)
    await client.subscribe("tool.quiet", "quiet", cb=_replying(b"2"))
    await start_runner(ToolSpec(name="flooding"), ToolSpec(name="quiet"))

    with capture_logs() as logged:
        flooded, quiet = await asyncio.gather(planner.call("flooding", {}), planner.call("quiet", {}))

    assert flooded.failure is not None
    assert flooded.failure.code == "result_too_large"
    assert quiet.observation == 2
    assert [each["tool"] for each in logged if each["event"] == "tool_flooded"] == ["flooding"]
    assert (await planner.call("flooding", {})).observation == 1


async def test_a_call_waits_until_its_tool_is_free(
    planner: Planner, start_runner: Start, serve_tools: Serve, client: Client
) -> None:
    """`concurrency` holds although another call reached the tool past this tool runner."""
    running: list[str] = []
    go = asyncio.Event()

    @tool(concurrency=1, idempotent=True)
    def lathe(ctx: ToolContext) -> int:
        running.append(ctx.idempotency_key)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
        return len(running)

    loop = asyncio.get_running_loop()
    serve_tools(lathe)
    await start_runner()
    await planner.spec("lathe")
    other = ToolCall(
        call_id="1-0", run_id="0" * 32, tool="lathe", args={}, idempotency_key="other",
        deadline_at=int(time.time() * 1000) + 20_000,
    )  # fmt: skip
    await client.publish("tool.lathe", other.model_dump_json().encode())
    await wait_until(lambda: running, what="the other call runs")
    declined: list[Msg] = []

    async def on_reply(message: Msg) -> None:
        if (message.headers or {}).get("Runwire-Reply") == "declined":
            declined.append(message)

    await client.subscribe(subjects.answer.pattern(tool="lathe"), cb=on_reply)
    run = await planner.request("lathe", {})
    await wait_until(lambda: len(declined) > 3, what="the call was declined several times")
    assert running == ["other"]
    go.set()

    assert (await planner.outcome(run)).observation == 2
    assert running == ["other", f"{run}.1-0"]


async def test_the_author_of_a_tool_reads_why_a_result_was_not_accepted(
    planner: Planner, start_runner: Start, serve_tools: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """In the tool's own log, whether the SDK found it or the tool runner. No value of the result is there."""

    class Plot(BaseModel):
        points: int

    @tool
    async def plotted() -> Plot:
        plot = Plot(points=1)
        plot.points = "canary"  # type: ignore[assignment]  # Only the tool runner sees this mistake.
        return plot

    @tool
    async def counted() -> int:
        return "canary"  # type: ignore[return-value]  # that is the mistake

    serve_tools(plotted, counted)
    await start_runner()

    for name in ("plotted", "counted"):
        failed = await planner.call(name, {})
        assert failed.failure is not None
        assert failed.failure.code == "invalid_result"

    def logged() -> list[str]:
        return [text for record in caplog.records if "failed:" in (text := record.getMessage())]

    await wait_until(lambda: len(logged()) == 2, what="both failures are in the log")
    assert "does not fit its outputSchema" in next(text for text in logged() if text.startswith("plotted"))
    assert "canary" not in caplog.text
