"""What a served tool sends beside its result: a text for the model, pieces; and who gets it."""

import threading

from nats.aio.client import Client

from contracts.wire.names import new_id
from runwire import ToolContext, ToolResponse, tool
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


async def test_a_result_that_is_an_artifact_is_completed_where_it_is_served(client: Client, serving: Serve) -> None:
    """From the request, for coroutines and plain functions; its text goes before it."""

    @tool
    async def write(topic: str) -> ToolResponse[dict[str, str]]:
        return ToolResponse({"title": topic}, artifact_id="abc-123", content="written")

    @tool
    def write_plainly(topic: str) -> ToolResponse[dict[str, str]]:
        return ToolResponse({"title": topic}, artifact_id="abc-123", content="written")

    await serving(write, write_plainly)
    for name in ("write", "write_plainly"):
        caller = await Caller(client).start()
        request = {"request_id": "req-789", "session_id": "ctx-456", "user_id": "user-345", "trace_id": "trace-012"}
        key = new_id()
        await caller.send(name, {"topic": "AI"}, key, understands_content=True, **request)
        _, found = await caller.end()
        assert caller.replies[0] == ("content", b"written")
        assert (found["artifact_id"], found["mcp_execution_id"], found["artifact"]) == ("abc-123", key, {"title": "AI"})
        metadata = {member: found["_metadata"][member] for member in request}
        assert metadata == request
        assert (found["_metadata"]["context_id"], found["_metadata"]["tool_name"]) == ("ctx-456", name)


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
