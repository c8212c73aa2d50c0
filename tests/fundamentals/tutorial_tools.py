"""The tools of the tutorial: each shows one thing that a tool can do."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel, Field

from runwire import ToolContext, ToolError, tool

INHABITANTS = {"Lisbon": 545_796, "Porto": 231_800}
MINUTES = "The minutes, for people only. " * 3_000
"""About 90 KB: too large to travel inside a message."""


class Nap(BaseModel):
    """How long."""

    seconds: float = Field(ge=0, le=60)


@tool(desc="Take a nap of so many seconds", idempotent=True)
async def take_nap(args: Nap, ctx: ToolContext) -> dict[str, str]:
    """Take time, and report progress."""
    await ctx.progress("asleep", 0.5)
    await asyncio.sleep(args.seconds)
    return {"answer": f"slept {args.seconds:g} seconds"}


class Postcard(BaseModel):
    """To whom."""

    recipient: str


@tool(desc="Post a postcard to a recipient", side_effects="external", timeout_s=10)
async def post_postcard(args: Postcard, ctx: ToolContext) -> dict[str, str]:
    """Have a side effect that must not happen twice: a line in a file."""
    with (Path(os.environ["TUTORIAL_FOLDER"]) / "postcards").open("a", encoding="utf-8") as book:
        book.write(f"{ctx.idempotency_key} {args.recipient}\n")
    await asyncio.sleep(1.5)
    return {"answer": f"posted to {args.recipient}"}


@tool(desc="Count the inhabitants of a city", idempotent=True)
async def count_inhabitants(city: str) -> dict[str, str | int]:
    """Fail in a way that the model can act on."""
    if city not in INHABITANTS:
        raise ToolError(f"{city} is not in the register; it holds {' and '.join(INHABITANTS)}")
    return {"city": city, "inhabitants": INHABITANTS[city]}


@tool(desc="Add up the inhabitants of several cities", idempotent=True)
async def add_up_inhabitants(results: list[dict[str, str | int]]) -> dict[str, int]:
    """Take the results of other calls."""
    return {"inhabitants": sum(int(result["inhabitants"]) for result in results)}


class Minutes(BaseModel):
    """A summary for the model, the whole text for people."""

    summary: str
    minutes: str = Field(json_schema_extra={"artifact": True})


@tool(desc="Fetch the minutes of the meeting", idempotent=True)
async def fetch_minutes() -> Minutes:
    """Return an artifact."""
    return Minutes(summary="They met.", minutes=MINUTES)


class Seat(BaseModel):
    """What the person chooses."""

    name: str = Field(pattern="^[0-9]{1,2}[A-F]$")


@tool(desc="Book a seat on a flight; a person chooses the seat", side_effects="external")
async def book_seat(flight: str, ctx: ToolContext) -> dict[str, str]:
    """Ask a person. What must not happen twice, the offer, is noted in `ctx.state`."""
    if "offer" not in ctx.state:
        ctx.state["offer"] = f"offer for {flight}"
        with (Path(os.environ["TUTORIAL_FOLDER"]) / "offers").open("a", encoding="utf-8") as book:
            book.write(f"{ctx.idempotency_key}\n")
    seat = await ctx.pause("input", {"free": ["3C", "7A"]}, schema=Seat, title=f"Which seat on {flight}?")
    await ctx.pause("approval", seat, title=f"Book {seat.name}?")
    return {"booked": f"{seat.name} by {ctx.state['offer']}"}


class Payment(BaseModel):
    """How much."""

    euros: int = Field(ge=1, le=1_000)


@tool(desc="Pay an amount in euros", side_effects="external", requires_approval=True)
async def pay(args: Payment, ctx: ToolContext) -> dict[str, str]:
    """Do what nobody may do without a person's approval: a line in a file."""
    with (Path(os.environ["TUTORIAL_FOLDER"]) / "payments").open("a", encoding="utf-8") as book:
        book.write(f"{ctx.idempotency_key} {args.euros}\n")
    return {"answer": f"paid {args.euros} euros"}
