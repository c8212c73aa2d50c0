"""A tool that works until a test lets it end."""

import asyncio
from pathlib import Path

from runwire import ToolContext, tool


@tool(desc="Ponder a topic", idempotent=True, timeout_s=120)
async def ponder(topic: str, ctx: ToolContext) -> dict[str, str]:
    """Return once there is a file with the name of the topic, where the tool is served."""
    await ctx.progress(f"pondering {topic}", 0.5)
    while not Path(topic).exists():  # noqa: ASYNC110, ASYNC240, a file is all that the test and this process share
        await asyncio.sleep(0.05)
    return {"answer": f"pondered {topic}"}
