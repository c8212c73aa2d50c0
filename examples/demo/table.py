"""A tool that computes over a table: `analyze_table {file: "sales.csv", question: "Which region grew most?"}`.

What to compute is given by name (group_by, value, period, measure) or read from the question's words: names of columns,
values that stand in them, years, and words such as "grew", "average", "most" (`tables/plan.py`). Everything is computed
from the file, in decimals (`tables/figures.py`); nothing is guessed by a model. Blank cells are left out and counted.

Files are read from the data folder only: RUNWIRE_DATA, else examples/demo/data. Periods are ISO: 2024, 2024-Q3,
2024-07, 2024-07-31.
"""

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from examples.demo.tables.columns import Unclear, read_table
from examples.demo.tables.figures import Outcome, analyze, plain
from examples.demo.tables.plan import Grain, Measure, Plan, plan_of
from runwire import ToolContext, ToolError, tool

Option = dict[str, Any]
"""A chart as Apache ECharts takes it."""


def data_folder() -> Path:
    """Where files are read from."""
    return Path(os.environ.get("RUNWIRE_DATA") or Path(__file__).parent / "data").resolve()


def chart_of(outcome: Outcome, plan: Plan) -> Option:
    """Draw lines over time for growth, else bars."""
    kind = "line" if plan.measure == "growth" else "bar"
    return {
        "title": {"text": f"{plan.value if plan.measure != 'count' else 'rows'} by {plan.group_name}"},
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(outcome.series) > 1},
        "xAxis": {"type": "category", "data": outcome.labels},
        "yAxis": {"type": "value"},
        "series": [
            {"id": name, "name": name, "type": kind, "data": [None if v is None else plain(v) for v in cells]}
            for name, cells in outcome.series.items()
        ],
    }


def pieces(chart: Option) -> Sequence[Option]:
    """The chart as it grows: the frame, then a series at a time.

    Merging them in order (`setOption` does) gives the whole.
    """
    return [{**chart, "series": []}, *({"series": [series]} for series in chart["series"])]


class TableQuestion(BaseModel):
    """What to compute; what is not given is read from the question."""

    file: str = Field(default="sales.csv", description="a CSV or TSV file in the data folder")
    question: str = Field(
        default="", max_length=1000, description="in words, as: Which region grew most? Average units in 2024?"
    )
    group_by: str | None = Field(default=None, description="column whose values are compared")
    value: str | None = Field(default=None, description="column of numbers")
    period: str | None = Field(default=None, description="column of periods, as 2024-07")
    measure: Measure | None = Field(
        default=None, description="growth: first against last period; top: the largest sums"
    )
    grain: Grain | None = Field(default=None, description="width of a period")
    limit: int = Field(default=12, ge=1, le=50, description="rows in the answer, at most")


class TableAnswer(BaseModel):
    """What came out. The chart goes to people, not to the model."""

    answer: str
    table: list[dict[str, str | int | float]]
    rows_read: int
    chart: Option = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "chart"})


def answer_of(args: TableQuestion, folder: Path) -> TableAnswer:
    """Read, plan, compute, draw. Raises Unclear."""
    table = read_table(args.file, folder)
    plan = plan_of(table, args.question, **args.model_dump(include={"group_by", "value", "period", "measure", "grain"}))
    asked = re.search(r"\btop (\d{1,2})\b", args.question)
    outcome = analyze(table, plan, min(args.limit, int(asked[1]) or 1) if asked else args.limit)
    rows_read = len(next(iter(table.values())).cells)
    return TableAnswer(answer=outcome.answer, table=outcome.rows, rows_read=rows_read, chart=chart_of(outcome, plan))


@tool(
    desc="Analyse a table (CSV), such as sales by region and product: growth, sums, averages, counts and rankings "
    "by group, with a chart",
    tags=["analytics", "data"],
    idempotent=True,
    timeout_s=30,
)
async def analyze_table(args: TableQuestion, ctx: ToolContext) -> TableAnswer:
    """Answer the question with figures and draw them, a series at a time."""
    try:
        answer = await asyncio.to_thread(answer_of, args, data_folder())
    except Unclear as unclear:
        raise ToolError(str(unclear)) from unclear
    grown = pieces(answer.chart)
    for at, piece in enumerate(grown):
        await ctx.emit_artifact(stream_id="chart", chunk=piece, done=at == len(grown) - 1, artifact_type="echarts")
    return answer
