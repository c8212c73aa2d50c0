"""The wire formats of two providers, for the scripted server."""

import json
from collections.abc import Iterator
from typing import Any

TOO_LONG = {
    "message": "This model's maximum context length is 10 tokens.",
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
}
FILTERED = {
    "message": "The content management policy.",
    "type": "invalid_request_error",
    "code": "content_policy_violation",
}
"""Errors as OpenAI sends them: a conversation that is too long, and one that is refused."""


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def openai_events(model: str, reply: dict[str, Any]) -> Iterator[bytes]:
    """A chat completion as server-sent events: reasoning, text, tool calls, finish, usage, end."""

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    yield event({"role": "assistant", "content": ""})
    for piece in _pieces(reply["reasoning"], reply["piece"]):
        yield event({"reasoning_content": piece})
    for piece in _pieces(reply["text"], reply["piece"]):
        yield event({"content": piece})
    for index, call in enumerate(reply["tool_calls"]):
        function = {"name": call["name"], "arguments": ""}
        first = {"index": index, "id": f"call_{index}", "type": "function", **call, "function": function}
        yield event({"tool_calls": [{key: first[key] for key in first if key not in ("name", "arguments")}]})
        for piece in _pieces(call["arguments"], reply["piece"]):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if reply["finish_reason"]:
        yield event({}, reply["finish_reason"])
    if usage := reply["usage"]:
        counted = {
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": usage.get("cached_tokens", 0)},
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
        }
        yield _data({**head, "choices": [], "usage": counted})
    if reply["done"]:
        yield b"data: [DONE]\n\n"


def anthropic_events(model: str, reply: dict[str, Any]) -> Iterator[bytes]:
    """A message as server-sent events: thinking, text, stop reason with usage."""

    def block(index: int, kind: str, text: str) -> Iterator[bytes]:
        yield _named("content_block_start", index=index, content_block={"type": kind, kind: ""})
        for piece in _pieces(text, reply["piece"]):
            yield _named("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: piece})
        yield _named("content_block_stop", index=index)

    usage = reply["usage"] or {"prompt_tokens": 0, "completion_tokens": 0}
    read = usage.get("cached_tokens", 0)
    start = {"input_tokens": usage["prompt_tokens"] - read, "cache_read_input_tokens": read, "output_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": start}
    yield _named("message_start", message=message)
    blocks = [(kind, reply[name]) for kind, name in (("thinking", "reasoning"), ("text", "text")) if reply[name]]
    for index, (kind, text) in enumerate(blocks):
        yield from block(index, kind, text)
    stop = {"stop": "end_turn", "length": "max_tokens"}.get(reply["finish_reason"] or "stop", "end_turn")
    yield _named(
        "message_delta",
        delta={"stop_reason": stop, "stop_sequence": None},
        usage={"output_tokens": usage["completion_tokens"]},
    )
    yield _named("message_stop")


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\n".encode() + _data({"type": kind, **more})
