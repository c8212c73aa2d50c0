"""The text that a tool sends beside its result: where it is kept, and when it is the whole of it."""

import json
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import DIRECT_HEADER, REPLY_HEADER, CallRequested, RunnerAnnouncement, ToolCall, ToolSpec
from contracts.wire import subjects
from contracts.wire.limits import MAX_INLINE_BYTES
from contracts.wire.names import unix_ms
from runwire import ToolContext, ToolError, tool
from tests.support.waiting import wait_until

from .conftest import Planner, Serve, Start

Reply = tuple[dict[str, str], bytes]


def replying(client: Client, *replies: Reply) -> Callable[[Msg], Awaitable[None]]:
    """Sends these replies to each request."""

    async def on_call(message: Msg) -> None:
        for headers, body in replies:
            await client.publish(message.reply, body, headers=headers)

    return on_call


def content(body: bytes) -> Reply:
    """The reply `content`."""
    return {REPLY_HEADER: "content"}, body


def result(body: bytes) -> Reply:
    """The reply `result`."""
    return {REPLY_HEADER: "result"}, body


async def test_a_text_alone_is_a_result_where_no_schema_says_otherwise(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """It has no value, so none may be referred to. Without a content an empty body is no JSON."""
    await client.subscribe("tool.text_only", "text_only", cb=replying(client, content(b"it rains"), result(b"")))
    await client.subscribe("tool.nothing", "nothing", cb=replying(client, content(b""), result(b"")))
    await start_runner(ToolSpec(name="text_only"), ToolSpec(name="nothing"))
    finished = await planner.call("text_only", {})
    assert (finished.status, finished.observation, finished.content) == ("succeeded", None, "it rains")
    failed = await planner.call("nothing", {})
    assert failed.failure is not None
    assert failed.failure.code == "invalid_result"


@pytest.mark.parametrize("text", [b'{"a": 1}', b""], ids=["text", "nothing"])
@pytest.mark.parametrize("schema", [{"type": "object"}, {}, {"type": ["object", "null"]}], ids=str)
async def test_a_text_alone_is_no_result_of_a_tool_with_an_output_schema(
    planner: Planner, start_runner: Start, client: Client, schema: dict[str, object], text: bytes
) -> None:
    """Text is never read as JSON. The reason says what is missing; the text is not kept."""
    name = f"texts_{len(json.dumps(schema))}_{len(text)}"
    await client.subscribe(f"tool.{name}", name, cb=replying(client, content(text), result(b"")))
    await start_runner(ToolSpec(name=name, output_schema=schema))
    finished = await planner.call(name, {})
    assert finished.failure is not None
    assert finished.failure.code == "invalid_result"
    expected = f"{name} gave no structuredContent, which its outputSchema requires: send a result"
    assert finished.failure.reason == expected
    assert finished.content is None


async def test_a_longer_content_is_cut_with_a_warning(planner: Planner, start_runner: Start, client: Client) -> None:
    """The result counts nevertheless."""
    await client.subscribe(
        "tool.talks", "talks", cb=replying(client, content("ü".encode() * MAX_INLINE_BYTES), result(b"1"))
    )
    await start_runner(ToolSpec(name="talks"))
    finished = await planner.call("talks", {})
    assert (finished.status, finished.observation) == ("succeeded", 1)
    assert finished.content is not None
    assert len(finished.content.encode()) <= MAX_INLINE_BYTES
    assert finished.content.startswith("üüü")
    limit = f"at most {MAX_INLINE_BYTES} bytes of it are kept"
    assert finished.warnings == [f"content_cut: the content of talks is cut, since {limit}"]


async def test_the_request_says_that_a_content_is_accepted_and_what_it_belongs_to(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """`request_id` is the caller's; from a planner that does not send it, the run's."""
    seen: list[ToolCall] = []

    async def on_call(message: Msg) -> None:
        seen.append(ToolCall.model_validate_json(message.data))
        await message.respond(b"1")

    await client.subscribe("tool.asked", "asked", cb=on_call)
    await start_runner(ToolSpec(name="asked"))
    run = await planner.request("asked", {}, request_id="req-789")
    await planner.outcome(run)
    other = await planner.request("asked", {})
    await planner.outcome(other)
    assert [call.request_id for call in seen] == ["req-789", other]
    assert all(call.understands_content for call in seen)


async def test_a_python_tool_gives_a_content(planner: Planner, start_runner: Start, serve_tools: Serve) -> None:
    """Also beside a large result; a call that fails has none."""

    @tool
    async def summarise(size: int, ctx: ToolContext) -> str:
        ctx.set_content(f"{ctx.request_id} {ctx.context_id}")
        if size < 0:
            raise ToolError("not today")
        return "x" * size

    serve_tools(summarise)
    await start_runner(artifact_patience_s=0.1)
    finished = await planner.call("summarise", {"size": 20_000}, request_id="req-789", session_id="ctx-456")
    assert (len(finished.observation), finished.content) == (20_000, "req-789 ctx-456")
    run = await planner.request("summarise", {"size": 1})
    assert (await planner.outcome(run)).content == f"{run} {run}"
    assert (await planner.call("summarise", {"size": -1})).content is None


async def test_a_direct_call_replies_with_the_content(planner: Planner, start_runner: Start, client: Client) -> None:
    """In the outcome that is its reply."""
    instances: list[str] = []

    async def on_announcement(message: Msg) -> None:
        instances.append(RunnerAnnouncement.model_validate_json(message.data).instance)

    await planner.bus.subscribe(subjects.runner(), on_announcement)
    await client.subscribe("tool.at_once", "at_once", cb=replying(client, content(b"one"), result(b"1")))
    await start_runner(ToolSpec(name="at_once"))
    await wait_until(lambda: instances, what="the instance takes direct calls")
    call = CallRequested(
        call_id="1-1",
        run_id=await planner.open_run(),
        tenant="default",
        tool="at_once",
        args={},
        spec=(await planner.spec("at_once")).digest(),
        step=1,
        start_by=unix_ms() + 5000,
    )

    def is_begun(reply: Msg) -> bool:
        return (reply.headers or {})[DIRECT_HEADER] == "begun"

    reply = await planner.bus.request(
        subjects.direct_call(instances[-1]), call.model_dump_json().encode(), wait_s=5, interim=is_begun
    )
    assert CallFinished.model_validate_json(reply.data).content == "one"
