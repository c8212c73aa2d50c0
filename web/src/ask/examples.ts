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
    query: "I want to track my job applications",
    page: "tables_list",
    look: "It proposes a table, and changes nothing: you see it first, and decide. Then ask it there: “Add two rows and delete row 2”.",
    file: "services/tables/tools.py",
    lines: `@tool(side_effects="write", idempotent=True, hidden=True)
def apply_proposal(proposal: Proposal, ctx: ToolContext) -> Applied:
    return _listed(_applied(database, ctx.tenant, proposal))

# The model never calls it: a person chooses here, or a program does.
page = {"name": "table_view", "table_id": table_id}
run = await client.result(await client.start("Add two rows", page=page))
proposal_id = run.payload.extra["custom_payload"]["id"]
await client.apply_proposal(proposal_id, [0])`,
  },
] as const;
