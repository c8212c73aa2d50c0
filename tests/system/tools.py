"""Tools with a ledger of what they have done, served through the SDK, in several copies.

Each enters its call, then takes `ms` milliseconds. `after`: what a plan takes from the result of an earlier call.
"""

import asyncio
from typing import Literal

from pydantic import BaseModel

from runwire import ToolContext, ToolError, tool
from tests.system.executions import Did, enter


class Choice(BaseModel):
    """What a person answers."""

    colour: Literal["red", "green"]


async def _do(ms: int, ctx: ToolContext, after: str) -> Did:
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)


@tool(desc="Wait; calls may be repeated.", idempotent=True, timeout_s=10)
async def often(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """The one whose calls may be repeated."""
    return await _do(ms, ctx, after)


@tool(desc="Wait; has a side effect that must not happen twice.", idempotent=False, side_effects="write", timeout_s=10)
async def once(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """As its description says."""
    return await _do(ms, ctx, after)


@tool(desc="Wait, then fail; has a side effect that must not happen twice.", side_effects="write", timeout_s=10)
async def refuse(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """As its author meant it. Raises ToolError."""
    await _do(ms, ctx, after)
    raise ToolError("this tool refuses")


@tool(desc="Fail.", side_effects="write", timeout_s=10)
async def broken(ms: int, ctx: ToolContext) -> dict[str, str]:
    """By a mistake of its author."""
    enter(ctx.idempotency_key)
    raise ValueError(f"nothing takes {ms} ms")


@tool(desc="Pay; a person must approve.", requires_approval=True, side_effects="write", timeout_s=10)
async def pay(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Only once it is approved."""
    return await _do(ms, ctx, after)


@tool(desc="Paint in a colour that a person chooses.", side_effects="write", timeout_s=10)
async def paint(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Ask for the colour first."""
    await ctx.pause("input", {"question": "Which colour?"}, schema=Choice)
    return await _do(ms, ctx, after)
