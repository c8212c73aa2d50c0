"""Tools of the tests of the playground: one artifact of each kind, and something that takes long."""

import asyncio

from pydantic import BaseModel, Field

from runwire import ToolContext, tool

PDF = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 200 80]>> endobj
trailer <</Root 1 0 R>>
"""


class Findings(BaseModel):
    """A sentence for the model, the rest for people."""

    answer: str
    notes: str = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "notes"})
    code: str = Field(json_schema_extra={"artifact": True})
    rows: list[dict[str, float]] = Field(json_schema_extra={"artifact": True})
    report: bytes = Field(json_schema_extra={"artifact": True})


@tool(desc="Return an artifact of each kind", idempotent=True)
async def gather_findings(ctx: ToolContext) -> Findings:
    """Everything at once."""
    await ctx.emit_artifact(stream_id="notes", chunk="# Notes", done=True, artifact_type="markdown")
    rows = [{"share": 0.5}, {"share": 0.25}, {"share": 0.75}]
    return Findings(answer="East grew most.", notes="# Notes", code="print(1)", rows=rows, report=PDF)


@tool(desc="Brew coffee slowly", timeout_s=300)
async def brew_coffee() -> str:
    """Take longer than any test."""
    await asyncio.sleep(300)
    return "brewed"
