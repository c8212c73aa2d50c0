"""A gateway whose `/mcp` has tools and an agent behind it, and messages to it."""

import asyncio
import base64
import contextlib
import io
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from contracts.artifacts import ModelProfile
from contracts.tools.messages import ArtifactPiece, Progress, ToolSpec
from contracts.wire import keys
from services.gateway.auth.key_lines import new_key
from services.messaging.kv import Bucket
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.run_services import MODEL, Replied, planning, tools_at_work

PICTURE = Image.frombytes("RGB", (120, 120), random.Random(1).randbytes(120 * 120 * 3))
TABLE = "id,name\n" + "1,Zoë\n" * 6_000
NUMBERS = {"type": "object", "properties": {name: {"type": "integer"} for name in "ab"}, "required": ["a", "b"]}
SPECS = {
    "add": ToolSpec(name="add", description="Adds.", input_schema=NUMBERS, side_effects="none", idempotent=True),
    "slow": ToolSpec(name="slow"),
    "endless": ToolSpec(name="endless"),
    "pay": ToolSpec(name="pay", input_schema=NUMBERS, requires_approval=True),
    "tell": ToolSpec(name="tell"),
    "forbidden": ToolSpec(name="forbidden", side_effects="write"),
    "secret": ToolSpec(name="secret", hidden=True),
}
KEYS = {
    "all": new_key("acme"),
    "other": new_key("acme", {"name": "other"}),
    "runs": new_key("acme", {"rights": "run", "name": "runs", "tools": "add,slow,endless,pay"}),
    "reads": new_key("acme", {"rights": "", "name": "reads"}),
    "agent": new_key("acme", {"name": "agent", "agents": "helper"}),
    "pinned": new_key("acme", {"name": "pinned", "user": "ada"}),
    "foreign": new_key("umbrella"),
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


@dataclass
class Mcp:
    """The gateway, its tools and its provider."""

    served: Served
    provider: ModelServer
    called: list[tuple[str, dict[str, Any]]]

    @property
    def url(self) -> str:
        """Of `/mcp`."""
        return f"{self.served.url}/mcp"

    def bearer(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {KEYS[key][0]}"}

    async def post(self, message: Any, key: str = "all", **headers: str) -> httpx.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        return await self.served.http.post("/mcp", content=content, headers={**self.bearer(key), **sent, **headers})

    async def session(self, key: str = "all") -> dict[str, str]:
        """Initialize, and return the header of the session."""
        return {"Mcp-Session-Id": (await self.post(INITIALIZE, key)).headers["Mcp-Session-Id"]}


def messages_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """All messages of an answer, the result last."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return [answer.json()]


@contextlib.asynccontextmanager
async def running(
    url: str, provider: ModelServer, folder: Path, specs: dict[str, ToolSpec], **settings: Any
) -> AsyncIterator[Mcp]:
    """A gateway with a planner, these tools and the agent `helper`."""
    called: list[tuple[str, dict[str, Any]]] = []

    async def work(name: str, args: dict[str, Any]) -> Any:
        called.append((name, args))
        if name == "endless":
            await asyncio.sleep(60)
        if name == "draw":
            PICTURE.save(encoded := io.BytesIO(), "PNG")
            files = {"image/png": base64.b64encode(encoded.getvalue()).decode(), "text/csv": TABLE}
            pieces = [
                ArtifactPiece(stream_id=kind[-3:], seq=0, chunk=data, done=True, artifact_type=kind)
                for kind, data in files.items()
            ]
            made = [("artifact_chunk", piece.model_dump_json().encode()) for piece in pieces]
            return Replied([*made, ("result", b"{}")])
        if name in {"slow", "test_tool_with_progress"}:
            steps = [Progress(message="step 1"), Progress(message="step 2", fraction=1)]
            shown = [("progress", step.model_dump_json().encode()) for step in steps]
            return Replied([*shown, ("result", b'{"sum": 3}')])
        return "told" if name == "tell" else {"sum": args.get("a", 0) + args.get("b", 0)}

    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(serving(url, **settings))
        agents = {"helper": {"tools": ["add"]}}
        planner = await stack.enter_async_context(planning(url, provider, agents=agents, folder=folder))
        handlers = {name: (spec, lambda args, name=name: work(name, args)) for name, spec in specs.items()}
        await stack.enter_async_context(tools_at_work(planner, url, handlers))
        profile = ModelProfile(model=MODEL, images="seen", agents=["helper"], descriptions={"helper": "Helps."})
        await Bucket(planner.bus, keys.CATALOGUE_BUCKET, attempts=1).put(keys.model_key(MODEL), profile, ttl_s=600)
        yield Mcp(gateway, provider, called)


@pytest.fixture
async def mcp(own_nats_server: NatsServer, provider: ModelServer, tmp_path: Path) -> AsyncIterator[Mcp]:
    """With the keys."""
    lines = ",".join(line for _, line in KEYS.values())
    async with running(own_nats_server.url, provider, tmp_path, SPECS, api_keys=lines) as found:
        yield found
