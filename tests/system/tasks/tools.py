"""The tools of the storm over conversations, and one that fails."""

from runwire import ToolContext, tool
from tests.system.conversations.tools import once, paint, pay
from tests.system.executions import enter

__all__ = ["broken", "once", "paint", "pay"]


@tool(desc="Fail.", side_effects="write", timeout_s=10)
async def broken(ms: int, ctx: ToolContext) -> dict[str, str]:
    """Enter the call into the ledger, then fail."""
    enter(ctx.idempotency_key)
    raise ValueError(f"nothing takes {ms} ms")
