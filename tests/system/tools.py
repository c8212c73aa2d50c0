"""Tools with a ledger: one whose calls may be repeated, two whose calls may not.

Served through the SDK, in several copies.
"""

import asyncio

from runwire import ToolContext, tool
from tests.system.executions import STOPPED, enter


@tool(desc="Wait; calls may be repeated.", idempotent=True, timeout_s=10)
async def often(ms: int, ctx: ToolContext) -> dict[str, str]:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key)
    await asyncio.sleep(ms / 1000)
    return {"did": ctx.idempotency_key}


@tool(desc="Wait; has a side effect that must not happen twice.", idempotent=False, side_effects="write", timeout_s=10)
async def once(ms: int, ctx: ToolContext) -> dict[str, str]:
    """Enter the call into the ledger, then take `ms` milliseconds."""
    enter(ctx.idempotency_key)
    await asyncio.sleep(ms / 1000)
    return {"did": ctx.idempotency_key}


@tool(desc="Wait; notices when it is told to stop.", idempotent=False, side_effects="write", timeout_s=10)
async def stoppable(ms: int, ctx: ToolContext) -> dict[str, str]:
    """Enter the call into the ledger, take `ms` milliseconds, and enter it again when cancelled."""
    enter(ctx.idempotency_key)
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        enter(ctx.idempotency_key + STOPPED)
        raise
    return {"did": ctx.idempotency_key}
