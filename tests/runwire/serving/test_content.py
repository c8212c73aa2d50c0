"""What a served tool sends beside its result: a text for the model, pieces; and who gets it."""

import threading

from nats.aio.client import Client

from contracts.wire.names import new_id
from runwire import ToolContext, tool
from tests.support.waiting import wait_until

from .conftest import Caller, Serve, asking


async def test_the_content_goes_before_the_result_to_callers_that_accept_it(client: Client, serving: Serve) -> None:
    """Once, the last one; others get the result alone, as their first reply."""

    @tool
    def weather(ctx: ToolContext) -> int:
        ctx.set_content("cold")
        ctx.set_content("12 °C")
        return 12

    await serving(weather)
    accepting, other = [await Caller(client).start() for _ in range(2)]
    await accepting.send("weather", {}, new_id(), understands_content=True)
    await other.send("weather", {}, new_id())
    await accepting.end()
    await other.end()
    assert accepting.replies == [("content", "12 °C".encode()), ("result", b"12")]
    assert other.replies == [("result", b"12")]


async def test_a_repeated_request_joins_the_call(client: Client, serving: Serve) -> None:
    """The function runs once. Who joins it, asks for its status, or comes after its end, gets all that was sent."""
    executed: list[str] = []
    go = threading.Event()

    @tool
    def heavy(ctx: ToolContext) -> str:
        executed.append(ctx.idempotency_key)
        ctx.set_content("heavy")
        ctx.emit_artifact(stream_id="s", chunk=1)
        go.wait(10)
        return "x" * (2 << 20)

    await serving(heavy)
    first, joined, asked, late, told = [await Caller(client).start() for _ in range(5)]
    await first.send("heavy", {}, "k1", understands_content=True)
    await wait_until(lambda: "artifact_chunk" in first.kinds(), what="the first piece is shown")
    await joined.send("heavy", {}, "k1", understands_content=True)
    await asked.query("tool.heavy.status", "k1")
    await wait_until(
        lambda: "artifact_chunk" in joined.kinds() and "artifact_chunk" in asked.kinds(), what="both are shown it too"
    )
    go.set()
    for caller in (first, joined, asked):
        await caller.end()
    await late.send("heavy", {}, "k1", understands_content=True)
    await told.query("tool.heavy.status", "k1")
    for caller in (late, told):
        await caller.end()
    for caller in (first, joined, asked, late, told):
        assert caller.kinds()[-5:] == ["content", "part", "part", "part", "result"]
        assert ("content", b"heavy") in caller.replies
    assert asked.kinds()[0] == "heartbeat"
    assert executed == ["k1"]


async def test_a_call_without_a_result_has_no_content(client: Client, serving: Serve) -> None:
    """Neither a failure nor a pause."""

    @tool
    def asks(ctx: ToolContext) -> str:
        ctx.set_content("almost")
        return str(ctx.pause(schema=str).value)

    @tool
    def breaks(ctx: ToolContext) -> str:
        ctx.set_content("almost")
        raise KeyError("no")

    await serving(asks, breaks)
    for name, kind in (("asks", "pause"), ("breaks", "failure")):
        caller = await asking(client, name, {}, understands_content=True, understands_pause=True)
        await caller.end()
        assert caller.kinds() == [kind]
