"""Two tools of the tutorial: one that takes its time, and one with a side effect."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel, Field

from runwire import ToolContext, tool


class Nap(BaseModel):
    """How long."""

    seconds: float = Field(ge=0, le=60)


@tool(desc="Take a nap of so many seconds", idempotent=True)
async def take_nap(args: Nap, ctx: ToolContext) -> dict[str, str]:
    """Sleep, and say so."""
    await ctx.progress("asleep", 0.5)
    await asyncio.sleep(args.seconds)
    return {"answer": f"slept {args.seconds:g} seconds"}


class Postcard(BaseModel):
    """To whom."""

    recipient: str


@tool(desc="Post a postcard to a recipient", side_effects="external", timeout_s=10)
async def post_postcard(args: Postcard, ctx: ToolContext) -> dict[str, str]:
    """Something that must not happen twice: one line in a book."""
    with (Path(os.environ["TUTORIAL_FOLDER"]) / "postcards").open("a", encoding="utf-8") as book:
        book.write(f"{ctx.idempotency_key} {args.recipient}\n")
    await asyncio.sleep(1.5)
    return {"answer": f"posted to {args.recipient}"}
