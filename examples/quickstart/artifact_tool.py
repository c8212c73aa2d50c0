"""A tool with an artifact: people get the chart, bar by bar; the model reads the sentence and a placeholder."""

from typing import Any

from pydantic import BaseModel, Field

from runwire import ToolContext, tool


class Drawn(BaseModel):
    """`answer` is for the model, `chart` for people: the annotation takes it out of what the model sees."""

    answer: str
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "bars"})


@tool(desc="Draw a bar chart of numbers", idempotent=True)
async def draw_bars(numbers: list[float], ctx: ToolContext) -> Drawn:
    """Show the chart while it grows, then return it as a whole."""
    for count in range(1, len(numbers) + 1):
        await ctx.emit_artifact(stream_id="bars", chunk={"bars": numbers[:count]}, done=count == len(numbers))
    return Drawn(answer=f"drew {len(numbers)} bars", chart={"bars": numbers})
