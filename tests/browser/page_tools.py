"""Tools of the tests of the playground: an artifact of each kind, those of a hostile tool, and something slow."""

import asyncio
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from runwire import ToolContext, tool

LARGE = 2**53 + 1
"""A number of JavaScript is not as exact."""
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
    rows: list[dict[str, float | int]] = Field(json_schema_extra={"artifact": True})
    report: bytes = Field(json_schema_extra={"artifact": True})


@tool(desc="Return an artifact of each kind", idempotent=True)
async def gather_findings(ctx: ToolContext) -> Findings:
    """Everything at once."""
    await ctx.emit_artifact(stream_id="notes", chunk="# Notes", done=True, artifact_type="markdown")
    rows: list[dict[str, float | int]] = [{"share": 0.5, "of": LARGE}, {"share": 0.25}, {"share": 0.75}]
    return Findings(answer="East grew most.", notes="# Notes", code="print(1)", rows=rows, report=PDF)


class Hostile(BaseModel):
    """A case of `hostile.json`: a chart, or its Markdown as a document, a page and a picture."""

    chart: dict[str, Any] | None = Field(json_schema_extra={"artifact": True})
    notes: str = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "notes"})
    page: bytes | None = Field(json_schema_extra={"artifact": True})
    picture: bytes | None = Field(json_schema_extra={"artifact": True})


@tool(desc="Show a hostile case", idempotent=True)
async def show_case(number: int, ctx: ToolContext) -> Hostile:
    """What a page must not believe."""
    case = json.loads((Path(__file__).parent / "playground" / "hostile.json").read_text("utf-8"))[number]
    text = case.get("markdown", "")
    await ctx.emit_artifact(stream_id="notes", chunk=text, done=True, artifact_type="markdown")
    page, picture = (
        f"<!doctype html><html><body>{text}</body></html>",
        f'<svg xmlns="http://www.w3.org/2000/svg">{text}</svg>',
    )
    return Hostile(chart=case.get("option"), notes=text, page=page.encode(), picture=picture.encode())


@tool(desc="Brew coffee slowly", timeout_s=300)
async def brew_coffee() -> str:
    """Take longer than any test."""
    await asyncio.sleep(300)
    return "brewed"
