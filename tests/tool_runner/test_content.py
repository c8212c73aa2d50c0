"""The text that a tool sends beside its result: where it is kept, and when it is the whole of it."""

import json
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import DIRECT_HEADER, REPLY_HEADER, CallRequested, RunnerAnnouncement, ToolSpec
from contracts.wire import subjects
from contracts.wire.names import unix_ms
from tests.support.waiting import wait_until

from .conftest import Planner, Start

Reply = tuple[dict[str, str], bytes]


def replying(client: Client, *replies: Reply) -> Callable[[Msg], Awaitable[None]]:
    """Sends these replies to each request."""

    async def on_call(message: Msg) -> None:
        for headers, body in replies:
            await client.publish(message.reply, body, headers=headers)

    return on_call


def content(body: bytes) -> Reply:
    return {REPLY_HEADER: "content"}, body


def result(body: bytes) -> Reply:
    return {REPLY_HEADER: "result"}, body


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
