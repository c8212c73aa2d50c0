"""Tools that wait for people, with a ledger of what they have done.

`after`: what a plan takes from the result of an earlier call.
"""

import asyncio
from typing import Literal

from pydantic import BaseModel

from runwire import ToolContext, tool
from tests.system.executions import Did, enter


class Choice(BaseModel):
    """What a person answers."""

    colour: Literal["red", "green"]


@tool(desc="Pay; a person must approve.", requires_approval=True, side_effects="write", timeout_s=10)
async def pay(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)


@tool(desc="Paint in a colour that a person chooses.", side_effects="write", timeout_s=10)
async def paint(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Ask for the colour, then enter the call into the ledger."""
    await ctx.pause("input", {"question": "Which colour?"}, schema=Choice)
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)


@tool(desc="Wait; has a side effect that must not happen twice.", side_effects="write", timeout_s=10)
async def once(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)
