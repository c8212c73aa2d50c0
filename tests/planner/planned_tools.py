"""Two tools for runs of the strategy `planned`, and what a model says that plans calls of them."""

import asyncio
import json
from typing import Any

from contracts.tools.messages import ToolSpec
from tests.support.model_server import Say
from tests.support.run_services import Handler, Story

BLOG = {
    "type": "object",
    "properties": {
        "blog_id": {"type": "string"},
        "title": {"type": "string"},
        "words": {"type": "integer"},
        "secret": {"type": "string", "artifact": True},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"url": {"type": "string"}}}},
    },
    "required": ["blog_id", "title"],
}
WRITING = {
    "type": "object",
    "properties": {
        "blog_id": {"type": "string"},
        "words": {"type": "integer", "maximum": 2**256},
        "text": {"type": "string"},
    },
    "required": ["blog_id"],
    "additionalProperties": False,
}
RESEARCH = {"tool_name": "research", "arguments": {"topic": "AI"}}


def planned(*calls: dict[str, Any], **more: Any) -> Say:
    return native({"type": "tool_calls", "reasoning": "because", "calls": list(calls)}, **more)


def native(value: Any, **more: Any) -> Say:
    return Say(tool_calls=[{"name": "__planning__", "arguments": json.dumps(value)}], **more)


def write(**arguments: Any) -> dict[str, Any]:
    return {"tool_name": "write", "arguments": arguments}


class Tools:
    """`research` and `write`, which keep what they are called with."""

    def __init__(self, result: Any = None, written: Any = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.result = {"blog_id": "b-1", "title": "AI now", "secret": "CANARY"} if result is None else result
        self.written = {"done": True} if written is None else written

    def of(self) -> dict[str, tuple[ToolSpec, Handler]]:
        topic = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
        return {
            "research": (
                ToolSpec(name="research", input_schema=topic, output_schema=BLOG, idempotent=True),
                self._tool("research", lambda: self.result),
            ),
            "write": (ToolSpec(name="write", input_schema=WRITING), self._tool("write", lambda: self.written)),
        }

    def _tool(self, name: str, result: Any) -> Handler:
        async def answer(args: dict[str, Any]) -> Any:
            self.calls.append((name, args))
            found = result()
            if isinstance(found, float):
                await asyncio.sleep(found)
                return self.result if name == "research" else {}
            return found

        return answer


def steps(story: Story) -> list[tuple[str, str]]:
    """The steps of a run, by node and status."""
    return [(step.node, step.status) for step in story.of("step")]
