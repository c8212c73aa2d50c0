"""What others have on npm, for what `/mcp` declares: the conformance package, and the official client in TypeScript."""

import asyncio
import json
from pathlib import Path

import pytest

from contracts.tools.messages import ToolSpec
from tests.gateway.protocols.mcp.conftest import running
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.needs import needs_program

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
PACKAGES = ("node@22.23.3", "@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/sdk@1.32.2")
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "resources-list",
    "dns-rebinding-protection",
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {name: {"type": "string"} for name in ("street", "city")}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
SPECS = [
    ToolSpec(name="test_simple_text", description="Tells."),
    ToolSpec(name="test_error_handling", description="Fails.", input_schema={"type": "object", "required": ["a"]}),
    ToolSpec(name="test_tool_with_progress", description="Works."),
    ToolSpec(name="json_schema_2020_12_tool", description="Adds.", input_schema=SCHEMA),
]
CLIENT = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const progress = [];
const onprogress = ({ message }) => progress.push(message);
const { tools } = await client.listTools();
const { structuredContent } = await client.callTool({ name: "test_tool_with_progress" }, undefined, { onprogress });
console.log(JSON.stringify({ tools: tools.map(({ name }) => name), structuredContent, progress }));
await client.close();
"""


async def ran(folder: Path, *command: object) -> str:
    """What a command writes. Fails with that if it does."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-4000:]
    return out.decode()


async def test_what_npm_has(own_nats_server: NatsServer, provider: ModelServer, tmp_path: Path) -> None:
    """Each scenario passes; the client lists, and calls with progress."""
    (tmp_path / "package.json").write_text('{"private": true, "allowScripts": {"node": true}}')
    await ran(tmp_path, needs_program("npm"), "install", "--no-audit", "--no-fund", *PACKAGES)
    node, conformance = (tmp_path / "node_modules" / ".bin" / name for name in ("node", "conformance"))
    async with running(
        own_nats_server.url, provider, tmp_path, {spec.name: spec for spec in SPECS}
    ) as mcp:  # Without keys, from loopback.
        for scenario in SCENARIOS:
            await ran(tmp_path, node, conformance, "server", "--url", mcp.url, "--scenario", scenario)
        (tmp_path / "client.mjs").write_text(CLIENT)
        said = json.loads(await ran(tmp_path, node, "client.mjs", mcp.url))
        assert said["structuredContent"] == {"sum": 3}
        assert said["progress"][-1] == "test_tool_with_progress: step 2 (100%)"
        assert {spec.name for spec in SPECS} < set(said["tools"])
