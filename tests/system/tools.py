"""Tools with a ledger: one whose calls may be repeated, three whose calls may not, one of which always fails.

Served through the SDK, in several copies. `after`: what a plan takes from the result of an earlier call.
"""

import asyncio

from runwire import ToolContext, ToolError, tool
from tests.system.executions import Did, enter


@tool(desc="Wait; calls may be repeated.", idempotent=True, timeout_s=10)
async def often(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)


@tool(desc="Wait; has a side effect that must not happen twice.", idempotent=False, side_effects="write", timeout_s=10)
async def once(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    return Did(did=ctx.idempotency_key)


@tool(desc="Wait, then fail; has a side effect that must not happen twice.", side_effects="write", timeout_s=10)
async def refuse(ms: int, ctx: ToolContext, after: str = "") -> Did:
    """Enter the call into the ledger, then take `ms` milliseconds. Raises ToolError."""
    enter(ctx.idempotency_key, after)
    await asyncio.sleep(ms / 1000)
    raise ToolError("this tool refuses")
