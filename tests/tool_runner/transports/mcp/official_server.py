"""A server written with the official SDK, over standard input and output or over HTTP: `official_server.py [PORT]`."""

import base64
import os
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import BlobResourceContents, EmbeddedResource
from pydantic import BaseModel

server = MCPServer("official", log_level="WARNING")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def note(text: str) -> None:
    """Write a line of the ledger."""
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{text}\n")


class Sum(BaseModel):
    """What `add` answers."""

    sum: int


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(sum=a + b)


@server.tool(structured_output=False)
def shout(text: str) -> str:
    """Say it loudly."""
    if not text:
        raise ToolError("nothing to shout")
    return text.upper()


@server.tool(structured_output=False)
def draw() -> list[object]:
    """Draw a dot, with a table."""
    table = BlobResourceContents(uri="file:///t", mime_type="text/csv", blob=base64.b64encode(b"a,b\n").decode())
    return ["a dot", Image(data=base64.b64decode(PIXEL), format="png"), EmbeddedResource(resource=table)]


@server.tool(structured_output=False)
async def work(steps: int, ctx: Context) -> str:
    """Work in steps, and tell of each."""
    note("work began")
    try:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
            await anyio.sleep(0.06)
    except BaseException:
        note("work cancelled")
        raise
    note("work done")
    return "worked"


@server.tool(structured_output=False)
def environment() -> str:
    """Name the variables that it has."""
    return " ".join(sorted(os.environ))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
