"""What a provider wants to see again: gathered from its replies, sent back to the same model only."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from contracts.runs.step_events import Opaque
from services.planner.conversation.encoding import OPAQUE, Messages
from services.planner.models.by_provider import ByProvider
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints
from services.planner.models.types import ModelRequest, Reply
from services.planner.models.wire import OpaqueFields, restored
from tests.support.model_server import ModelServer, Say

CLAUDE = "anthropic/claude-sonnet-4-5"


def call(name: str, call_id: str = "", **more: Any) -> dict[str, Any]:
    """A native call, as a piece of a stream and as it is assembled."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def signed(signature: str) -> dict[str, Any]:
    """Gemini's fields of a call."""
    return {"extra_content": {"google": {"thought_signature": signature}}}


def thinking(*thoughts: tuple[str, str]) -> dict[str, Any]:
    """Anthropic's blocks, each with a text and a signature."""
    return {"thinking_blocks": [{"type": "thinking", "thinking": text, "signature": sign} for text, sign in thoughts]}


LET, SO, DETAILS = {"reasoning_content": "Let "}, {"reasoning_content": "me."}, ({"a": 1}, {"b": 2})
REDACTED = {"type": "redacted_thinking", "data": "x"}
SIGNED = thinking(("Let me.", "S"), ("And then.", "T"))["thinking_blocks"]
LOOK, ADD = (call(name, call_id) for name, call_id in (("look", "1"), ("add", "2")))


@pytest.mark.parametrize(
    ("deltas", "calls", "opaque"),
    [
        ([{"content": "no fields"}], [call("look")], None),
        ([{"reasoning_content": "no calls"}], [], None),
        ([LET, SO, {"reasoning": "not asked for"}], [call("look")], ({"reasoning_content": "Let me."}, [])),
        ([{"reasoning_details": [each]} for each in DETAILS], [LOOK], ({"reasoning_details": [*DETAILS]}, [])),
        (
            [{"tool_calls": [{**LOOK, **signed("A")}]}, {"tool_calls": [{**ADD, **signed("B")}]}],
            [ADD, LOOK],
            ({}, [signed("B"), signed("A")]),
        ),
        (
            [{"tool_calls": [call("look", **signed("A"))]}, {"tool_calls": [call("add", **signed("B"))]}],
            [call("look"), call("final_response"), call("add")],
            ({}, [signed("A"), signed("B")]),
        ),
        ([{"tool_calls": [{**LOOK, **signed("A")}]}], [LOOK, ADD], ({}, [signed("A"), {}])),
        (
            [{"tool_calls": [call("look", "call_1__thought__A")]}],
            [call("look", "call_1__thought__A")],
            ({}, [{"provider_specific_fields": {"thought_signature": "A"}}]),
        ),
        (
            [
                *map(thinking, [("Let ", ""), ("me.", ""), ("Let me.", "S")]),
                *map(thinking, [("And ", ""), ("then.", ""), ("", "T")]),
                {"thinking_blocks": [REDACTED]},
            ],
            [LOOK],
            ({"thinking_blocks": [*SIGNED, REDACTED]}, []),
        ),
    ],
)
def test_the_fields_of_a_reply_are_kept_as_they_came(
    deltas: list[dict[str, Any]], calls: list[dict[str, Any]], opaque: tuple[dict[str, Any], list[Any]] | None
) -> None:
    """With the calls that they belong to, and only beside calls."""
    fields = OpaqueFields()
    for delta in deltas:
        fields.take(delta)
    expected = None if opaque is None else Opaque(model="m", message=opaque[0], calls=opaque[1])
    assert fields.of("m", calls, "Let me.") == expected


def test_only_the_same_model_gets_them() -> None:
    """No model gets the key under which the planner keeps them. A plan of one call may have become several calls."""
    calls = [call("look", "1"), call("add", "2")]
    opaque = Opaque(model="m", message={"reasoning_content": "Let me."}, calls=[signed("A")]).model_dump()
    message = {"role": "assistant", "tool_calls": calls, OPAQUE: opaque}
    assert restored("other", message) == {"role": "assistant", "tool_calls": calls}
    assert restored("m", message) == {
        "role": "assistant",
        "reasoning_content": "Let me.",
        "tool_calls": [{**calls[0], **signed("A")}, calls[1]],
    }


SIGNATURE = {"type": "signature_delta", "signature": "S"}
ARGUMENTS = {"type": "input_json_delta", "partial_json": "{}"}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a block of Anthropic's."""
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


async def test_signed_thoughts_return_to_anthropic(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through LiteLLM, whole, and before the call."""
    server.reset()
    monkeypatch.setenv("ANTHROPIC_API_BASE", server.root)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up")
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        *block(0, thinking, *({"type": "thinking_delta", "thinking": part} for part in ("Let ", "me.")), SIGNATURE),
        *block(1, {"type": "tool_use", "id": "t", "name": "look", "input": {}}, ARGUMENTS),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    server.say(Say(blob=body.encode(), headers={"content-type": "text/event-stream"}), Say(text="yes"))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    models = ByProvider(Endpoints(environment={}), Limits())

    async def reply(*messages: dict[str, Any]) -> Reply:
        asked = Messages.of([{"role": "user", "content": "?"}, *messages])
        request = ModelRequest(model=CLAUDE, messages=asked, tools=tools, reasoning_effort="low")
        *_, last = [piece async for piece in models.stream(request)]
        await models.aclose()  # The server closes idle connections.
        assert isinstance(last, Reply)
        return last

    opaque = (await reply()).opaque
    assert opaque is not None
    calls = [call("look", "c00010001")]
    result = {"role": "tool", "tool_call_id": "c00010001", "content": "found"}
    await reply({"role": "assistant", "tool_calls": calls, OPAQUE: opaque.model_dump()}, result)
    spoken = server.ledger[1].body["messages"][1]["content"]
    assert spoken[0] == {"type": "thinking", "thinking": "Let me.", "signature": "S"}
    assert spoken[1]["type"] == "tool_use"
