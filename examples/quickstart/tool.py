"""A tool. Serve it: `runwire serve examples/quickstart/tool.py`, then ask for it in a question."""

from pydantic import BaseModel, Field

from runwire import ToolContext, ToolError, tool


class Text(BaseModel):
    """The arguments. The model is shown their schema, and what does not fit it never reaches the function."""

    text: str = Field(description="whose words are counted")


@tool(desc="Count the words of a text", idempotent=True)
async def count_words(args: Text, ctx: ToolContext) -> dict[str, int]:
    """Return any JSON. A ToolError tells the model what to do differently."""
    if not args.text.strip():
        raise ToolError("the text is empty: ask the user for one")
    await ctx.progress("counting", 0.5)
    return {"words": len(args.text.split())}
