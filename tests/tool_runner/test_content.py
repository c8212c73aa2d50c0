"""The text that a tool sends beside its result: where it is kept, and when it is the whole of it."""

import json

import pytest
from nats.aio.client import Client

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec

from .conftest import Direct, Planner, Start, fault_of, replying


@pytest.mark.parametrize("text", [b'{"a": 1}', b""], ids=["text", "nothing"])
@pytest.mark.parametrize("schema", [{"type": "object"}, {}, {"type": ["object", "null"]}], ids=str)
async def test_a_text_alone_is_no_result_of_a_tool_with_an_output_schema(
    planner: Planner, start_runner: Start, client: Client, schema: dict[str, object], text: bytes
) -> None:
    """Text is never read as JSON. The reason says what is missing; the text is not kept."""
    name = f"texts_{len(json.dumps(schema))}_{len(text)}"
    await client.subscribe(f"tool.{name}", name, cb=replying(client, ("content", text), b""))
    await start_runner(ToolSpec(name=name, output_schema=schema))
    finished = await planner.call(name, {})
    expected = f"{name} gave no structuredContent, which its outputSchema requires: send a result"
    assert (fault_of(finished).code, fault_of(finished).reason) == ("invalid_result", expected)
    assert finished.content is None


async def test_a_direct_call_replies_with_the_content(direct: Direct, start_runner: Start, client: Client) -> None:
    """In the outcome that is its reply."""
    await client.subscribe("tool.at_once", "at_once", cb=replying(client, ("content", b"one"), b"1"))
    await start_runner(ToolSpec(name="at_once"))
    _, outcome = await direct.call(await direct.message("at_once"))
    assert CallFinished.model_validate_json(outcome).content == "one"
