"""The bare loop as a Restate handler: each call of the model and of the tool is one journalled step.

Started by the Python of Restate's own environment, with the port as its argument; we never import it.
"""

import asyncio
import importlib
import json
import os
import sys
from typing import Any

import httpx

config = importlib.import_module("hypercorn.config")
hypercorn = importlib.import_module("hypercorn.asyncio")
restate = importlib.import_module("restate")

_SYSTEM = 'Reply with one JSON action: {"next_node": "echo" or "final_response", "args": {}}.'
_DATA = "data: {"
_URL = f"{os.environ['PEER_MODEL_URL']}/chat/completions"
http = httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None, max_keepalive_connections=500))
service = restate.Service("agent")


async def reply_to(messages: list[dict[str, str]]) -> str:
    """Return what the model writes."""
    text = ""
    body = {"model": "scripted", "messages": messages, "stream": True}
    async with http.stream("POST", _URL, json=body) as reply:
        async for line in reply.aiter_lines():
            if line.startswith(_DATA):
                choices = json.loads(line[len(_DATA) - 1 :])["choices"]
                text += (choices[0]["delta"].get("content") or "") if choices else ""
    return text


async def echo(key: str, number: int, pause_ms: int) -> str:  # noqa: ARG001
    """Return the number of the call, after a pause."""
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
    return json.dumps({"number": number})


async def run(ctx: Any, query: str) -> str:
    """Answer a question."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": query}]
    while True:
        text = await ctx.run_typed(f"model {len(messages)}", reply_to, messages=messages)
        action = json.loads(text)
        if action["next_node"] == "final_response":
            return str(action["args"]["answer"])
        result = await ctx.run_typed(f"tool {len(messages)}", echo, **action["args"])
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": result}]


if __name__ == "__main__":
    run.__annotations__["ctx"] = restate.Context
    service.handler()(run)
    settings = config.Config()
    settings.bind = [f"127.0.0.1:{sys.argv[1]}"]
    asyncio.run(hypercorn.serve(restate.app([service]), settings))
