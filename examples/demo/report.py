"""A tool with a side effect: `send_report {to: "ann@example.org", text: "All is well."}`. A person approves each call.

It sends nothing over a network: a report becomes a file in the outbox, RUNWIRE_OUTBOX, else `runwire-outbox` in the
system's folder for temporary files. The file is named after the call's idempotency key, so a repeated call writes the
same file again.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, Field

from runwire import ToolContext, tool

MAX_CHARACTERS = 20_000


class Report(BaseModel):
    """What to send, and to whom."""

    to: str = Field(
        pattern=r"^[^@\s]{1,64}@[^@\s]{1,255}$",
        description="the e-mail address of the person who gets the report",
        json_schema_extra={"format": "email"},
    )
    text: str = Field(min_length=1, max_length=MAX_CHARACTERS, description="the text of the report")


def outbox() -> Path:
    """Where reports are written."""
    return Path(os.environ.get("RUNWIRE_OUTBOX") or Path(tempfile.gettempdir()) / "runwire-outbox")


def write(report: Report, key: str) -> Path:
    """Write a report to the outbox, as often as wanted under one key."""
    folder = outbox()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{key}.txt"
    file.write_text(f"To: {report.to}\n\n{report.text}\n", encoding="utf-8")
    return file


@tool(
    desc="Send a report to a person by e-mail",
    tags=["report", "mail"],
    idempotent=True,
    side_effects="external",
    requires_approval=True,
    timeout_s=10,
)
async def send_report(args: Report, ctx: ToolContext) -> dict[str, str]:
    """Send it, after a person has approved the call."""
    file = await asyncio.to_thread(write, args, ctx.idempotency_key)
    return {"answer": f"The report was sent to {args.to}.", "file": str(file)}
