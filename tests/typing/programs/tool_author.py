"""A program that declares tools and tests them without a server."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

from pydantic import BaseModel

from runwire import Tool, ToolContext, ToolError, tool
from runwire.client import ToolSpec
from runwire.serving import serve
from runwire.testing import Paused, RecordingContext, Rejected


class Sales(BaseModel):
    """A result."""

    total: float


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(desc="Sum up sales", idempotent=True, side_effects="read", timeout_s=5, tags=["sales"])
async def sum_up(region: str, ctx: ToolContext) -> Sales:
    """A tool with a context."""
    assert_type(ctx.deadline_at, int)
    assert_type(ctx.cancelled, bool)
    if region == "Atlantis":
        raise ToolError("there is no such region", retryable=False, code="unknown_region")
    await ctx.progress("reading", 0.5)
    await ctx.emit_artifact(stream_id="sales", chunk={"bars": [1]}, done=True)
    ctx.logger.info("summed up")
    return Sales(total=12.5)


@tool
async def sell(region: str, ctx: ToolContext) -> Sales:
    """A tool that asks people."""
    assert_type(ctx.state, dict[str, Any])
    ctx.state["region"] = region
    assert_type(await ctx.pause("input", {"region": region}, schema=Sales, title="How much?"), Sales)
    assert_type(await ctx.pause("input", schema=int, expires=timedelta(hours=1), default=3), int)
    assert_type(await ctx.pause("approval"), Any)
    return await ctx.pause(schema=Sales)


@tool
def sell_plainly(ctx: ToolContext) -> Sales:
    """The same in a plain function."""
    assert_type(ctx.pause("input", schema={"type": "integer"}).value, Any)
    return ctx.pause("input", schema=Sales).value


async def check() -> None:
    """Both are still the functions that they were."""
    context = RecordingContext()
    assert_type(double(2), int)
    assert_type(await sum_up("North", context), Sales)
    assert_type(await sum_up.run({"region": "North"}, context), bytes)
    assert_type(context.progressed, list[tuple[str, float | None]])
    assert_type(context.pieces, dict[str, list[Any]])
    assert_type(context.finished, set[str])
    assert_type(double.spec, ToolSpec)
    typed: tuple[Tool[[int], int], Tool[[str, ToolContext], Coroutine[Any, Any, Sales]]] = (double, sum_up)
    plain: Callable[[int], int] = double
    assert (len(typed), plain(2)) == (2, 4)
    try:
        await sum_up.run({"region": "Atlantis"}, context)
    except ToolError as error:
        assert_type(error.reason, str)
        assert_type(error.retryable, bool)
        assert_type(error.code, str)
    try:
        await sell("North", RecordingContext(answers=[Sales(total=1.0), 3, True], state={}))
    except Paused as paused:
        assert_type(paused.pause.title, str)
    try:
        sell_plainly(RecordingContext(answers=[Rejected("no")]))
    except ToolError as error:
        assert_type(error.code, str)
    stop = asyncio.Event()
    stop.set()
    await serve([double, sum_up], "nats://127.0.0.1:1", stop=stop)


if __name__ == "__main__":
    asyncio.run(check())
