"""A tool that asks a person. The run waits for the answer, for days if need be, and no process waits with it."""

from pydantic import BaseModel, Field

from runwire import ToolContext, tool


class Colour(BaseModel):
    """The answer. The person is shown its schema, and what does not fit it is refused."""

    colour: str = Field(min_length=1, max_length=40)


@tool(desc="Paint a thing in the colour that the user chooses", idempotent=True, side_effects="external")
async def paint(thing: str, ctx: ToolContext) -> dict[str, str]:
    """The function ends at the pause, and runs from its beginning when the answer is there."""
    chosen = await ctx.pause("input", title=f"Which colour for {thing}?", schema=Colour)
    return {"answer": f"painted {thing} {chosen.colour}"}
