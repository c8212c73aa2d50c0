"""Checks of tools that are served, over a real server: the tool runner calls them, and answers an operator."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel, Field

from contracts.tools.messages import REPLY_HEADER, CheckTool, Finding, ToolChecked, ToolSpec
from contracts.wire import keys, subjects
from runwire import ToolContext, ToolError, ToolResponse, tool
from tests.tool_runner.conftest import Serve, Start


class Blog(BaseModel):
    """A post."""

    title: str


CALLS: list[str] = []
"""The idempotency key of each call of `write_post`."""


@tool(side_effects="external", desc="Writes a post.")
async def write_post(
    ctx: ToolContext,
    topic: str = Field(description="about what"),
    skill_id: str = Field(default="writing", description="how"),
) -> ToolResponse[Blog]:
    """Write it, and show how it goes."""
    CALLS.append(ctx.idempotency_key)
    if topic == "nothing":
        raise ToolError("there is nothing to say")
    await ctx.progress("half", 0.5)
    await ctx.emit_artifact(stream_id="lines", chunk="first")
    return ToolResponse(Blog(title=topic), artifact_id="abc-123", skill_id=skill_id, content=f"a post about {topic}")


async def check(client: Client, tool: str, **request: Any) -> dict[str, Finding]:
    """Ask for a check as `runwire tools check` does, and return the checklist by what its lines are about."""
    inbox, body = "_INBOX.operator.checks", CheckTool(tool=tool, **request).model_dump_json().encode()
    replies, kind = await client.subscribe(inbox), ""
    while kind != "result":
        if kind != "heartbeat":  # At first, and where the tool runner is just starting.
            await client.publish(subjects.tool_check(), body, reply=inbox)
        reply = await replies.next_msg(15)
        kind = (reply.headers or {}).get(REPLY_HEADER, "")
        assert kind != "failure", reply.data
    await replies.unsubscribe()
    findings = ToolChecked.model_validate_json(reply.data).findings
    lines = {line.name: line for line in findings}
    assert len(lines) == len(findings), "no two lines have the same name"
    return lines


def faults(found: dict[str, Finding]) -> dict[str, str]:
    """What is not ok."""
    return {name: line.status for name, line in found.items() if line.status != "ok"}


async def test_a_good_tool_passes(client: Client, serve_tools: Serve, start_runner: Start) -> None:
    """Called once, though its answer is asked for twice, and with the confirmation that its effects need."""
    bus = await start_runner()
    serve_tools(write_post)
    assert faults(await check(client, "write_post")) == {"output type": "warning"}
    args = {"topic": "AI", "skill_id": "research"}
    unconfirmed = await check(client, "write_post", args=args)
    assert (unconfirmed["call"].status, "--yes" in unconfirmed["call"].mend, CALLS) == ("failed", True, [])
    found = await check(client, "write_post", args=args, confirmed=True)
    assert faults(found) == {"output type": "warning", "artifact_type": "warning"}
    assert (found["artifact_id"].finding, found["skill_id"].finding) == ("abc-123", "research")
    assert len(CALLS) == 1
    run = CALLS[0].partition(".")[0]
    assert await bus.last(subjects.RUNS, subjects.stream("default", run)) is None, "a check leaves no run behind"
    assert await bus.last(subjects.bucket_stream(keys.ARTIFACTS_BUCKET), "$KV.artifacts.>") is None
    refused = await check(client, "write_post", args={"topic": 7}, confirmed=True)
    assert (refused["arguments"].status, len(CALLS)) == ("failed", 1)
    raised = await check(client, "write_post", args={"topic": "nothing"}, confirmed=True)
    assert raised["call"].finding == "tool_error: there is nothing to say"


OUTPUT = {
    "type": "object",
    "properties": {name: {} for name in ("artifact_id", "artifact", "_metadata")},
    "required": ["artifact_id", "artifact", "_metadata"],
}
Faulty = tuple[str, Any]
"""A member of a result, dotted, and the value that it has instead of the right one. None: it is left out."""


def answering(client: Client, *faulty: Faulty) -> Callable[[Msg], Awaitable[None]]:
    """A tool without an SDK that keeps no answers, with these faults."""

    async def on_call(message: Msg) -> None:
        call = json.loads(message.data)
        metadata = {name: call[name] for name in ("request_id", "trace_id", "user_id")}
        metadata |= {"context_id": call["session_id"], "tool_name": call["tool"]}
        metadata["executed_at"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        result = {"artifact_id": "abc-123", "artifact": {"title": "AI"}, "_metadata": metadata, "skill_id": "research"}
        for path, value in faulty:
            *outer, name = path.split(".")
            place: dict[str, Any] = metadata if outer else result
            place.pop(name)
            place |= {} if value is None else {name: value}
        await client.publish(message.reply, json.dumps(result).encode())

    return on_call


@pytest.mark.parametrize(
    ("faulty", "line", "status"),
    [
        (("artifact", None), "result", "failed"),
        (("_metadata.context_id", "other"), "_metadata.context_id", "failed"),
        (("_metadata.executed_at", "2025-01-31T12:00:00+00:00"), "_metadata.executed_at", "failed"),
        (("skill_id", None), "skill_id", "failed"),
        (("skill_id", "research"), "artifact_type", "warning"),
    ],
)
async def test_each_fault_of_an_answer_is_found(
    client: Client, start_runner: Start, faulty: Faulty, line: str, status: str
) -> None:
    """Of a tool without an SDK; others: `test_check_rules`. It is idempotent, so the repetition runs again."""
    subscription = await client.subscribe("tool.plain", "plain", cb=answering(client, faulty))
    # With its heartbeat it is known soon that nobody works on the first call any more.
    spec = ToolSpec(name="plain", description="?", idempotent=True, heartbeat_s=0.1, output_schema=OUTPUT)
    await start_runner(spec)
    found = await check(client, "plain", args={"skill_id": "research"})
    await subscription.unsubscribe()
    assert found[line].status == status
    assert [name for name, each in found.items() if each.status == "failed"] == ([line] if status == "failed" else [])
    has_time = line not in {"result", "_metadata", "_metadata.executed_at"}
    assert ("repetition" in found and found["repetition"].status == "warning") == has_time


async def test_a_specification_that_is_not_accepted(client: Client, serve_tools: Serve, start_runner: Start) -> None:
    """It is checked all the same, before it is accepted, and the line says how to accept it."""

    @tool(desc="Old.", name="changing", idempotent=True)
    def changing() -> int:
        return 1

    bus = await start_runner(trust_tools=False)
    accepted = json.dumps({"digests": ["a" * 24]}).encode()
    await bus.publish(f"$KV.catalogue.{keys.accepted_specs('changing')}", accepted)
    serve_tools(changing)
    found = await check(client, "changing", args={})
    assert found["accepted"].status == "failed"
    assert found["accepted"].mend == f"runwire tools accept changing {changing.spec.digest()}"
    assert found["call"].status == "ok"
