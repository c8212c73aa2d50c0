"""Tools that do nothing, served through the SDK: what is measured is the way to them and back."""

import asyncio

from runwire import tool


@tool(desc="Return at once; may be repeated.", idempotent=True, concurrency=1000)
async def instant(at: int) -> dict[str, int]:
    """Give back what came in."""
    return {"at": at}


@tool(desc="Return at once; may not be repeated.", idempotent=False, side_effects="write", concurrency=1000)
async def once(at: int) -> dict[str, int]:
    """Give back what came in."""
    return {"at": at}


@tool(desc="Wait, then return.", idempotent=True, concurrency=8)
async def slow(ms: int) -> dict[str, int]:
    """Give back how long it was asked to wait."""
    await asyncio.sleep(ms / 1000)
    return {"ms": ms}
