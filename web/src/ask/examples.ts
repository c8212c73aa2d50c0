// Questions that the demo model answers with the example tools, and what their tools are.

export const EXAMPLES = [
  {
    query: "Which region grew most in sales.csv? Draw a chart.",
    look: "Watch the chart grow while the tool still works, and the calls beside it on one time axis.",
    file: "examples/demo/table.py",
    lines: `class Analysis(BaseModel):
    answer: str
    table: list[dict[str, Any]]
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True})

@tool(desc="Answer questions about a CSV file", idempotent=True)
async def analyze_table(args: Question, ctx: ToolContext) -> Analysis:
    for number, series in enumerate(lines):
        await ctx.emit_artifact("chart", {"series": [series]}, artifact_type="echarts")
    return Analysis(answer=answer, table=table, chart=chart)`,
  },
  {
    query: 'Send a report to ann@example.org: "All is well"',
    look: "The run stops and waits for you. Restart everything meanwhile: it still waits.",
    file: "examples/demo/report.py",
    lines: `class Report(BaseModel):
    to: str
    text: str

@tool(desc="Send a report by mail", requires_approval=True)
async def send_report(args: Report, ctx: ToolContext) -> Sent:
    return write(args, ctx.idempotency_key)`,
  },
  {
    query: "What is (17*23)^2 / 7?",
    look: "One tool call with an exact result. Open the row on the right to see its arguments.",
    file: "examples/demo/calculator.py",
    lines: `@tool(desc="Compute an arithmetic expression", idempotent=True)
def calculate(expression: str) -> Result:
    return Result(value=evaluate(expression))`,
  },
] as const;
