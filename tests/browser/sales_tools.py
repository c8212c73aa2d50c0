"""Tools of the tests in a browser: a chart, and something that takes long."""

import asyncio
from typing import Any

from pydantic import BaseModel, Field

from runwire import ToolContext, tool

MONTHS = ["January", "February", "March", "April"]
SALES = {"North": [12, 18, 17, 25], "South": [9, 11, 16, 14]}


class Analysis(BaseModel):
    """The total for the model, the chart for people."""

    total: int
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "sales"})


@tool(desc="Analyze the sales of the year and draw a chart", idempotent=True)
async def analyze_table(ctx: ToolContext) -> Analysis:
    """Lines of two regions, as ECharts takes them, and month by month."""
    drawn: dict[str, Any] = {
        "title": {"text": "Sales by region"},
        "legend": {"top": "bottom"},
        "xAxis": {"type": "category", "data": MONTHS},
        "yAxis": {"type": "value"},
        "series": [{"name": region, "type": "line", "data": values} for region, values in SALES.items()],
    }
    for month in range(1, len(MONTHS) + 1):
        grown = [{**line, "data": line["data"][:month]} for line in drawn["series"]]
        await ctx.emit_artifact(stream_id="sales", chunk={**drawn, "series": grown}, done=month == len(MONTHS))
    return Analysis(total=sum(map(sum, SALES.values())), chart=drawn)


@tool(desc="Brew coffee slowly", timeout_s=300)
async def brew_coffee() -> str:
    """Take longer than any test."""
    await asyncio.sleep(300)
    return "brewed"
