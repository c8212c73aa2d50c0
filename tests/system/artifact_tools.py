"""Tools whose results are heavy, with canaries in what only people may see."""

import asyncio
import hashlib
import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runwire import ToolContext, tool

ARTIFACT: dict[str, Any] = {"artifact": True}
CANARIES = {name: f"canary-in-{name}-7f3a9c" for name in ("chart", "rows", "pdf", "small")}
"""Each has a multiple of three characters before it in the bytes, so that base64 of it is the same wherever it
stands."""


def chart() -> dict[str, Any]:
    """Some 70 KB, as ECharts takes it."""
    return {
        "title": {"text": CANARIES["chart"]},
        "series": [{"type": "line", "data": [round(n * 1.37, 2) for n in range(9_000)]}],
    }


def rows() -> list[dict[str, Any]]:
    """Some 5 MB."""
    return [{"n": n, "text": f"{CANARIES['rows']} {'x' * 200}"} for n in range(20_000)]


def pdf() -> bytes:
    """A document that is no text."""
    return b"%PDF-1.7\n" + CANARIES["pdf"].encode().ljust(27) + bytes(range(256)) * 300


def noise_of(megabytes: int, seed: int) -> bytes:
    """Bytes that nobody else has stored."""
    return random.Random(seed).randbytes(megabytes << 20)


class Report(BaseModel):
    """A text for the model, the rest for people."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    summary: str
    chart: dict[str, Any] = Field(json_schema_extra=ARTIFACT)
    rows: list[dict[str, Any]] = Field(json_schema_extra=ARTIFACT)
    pdf: bytes = Field(json_schema_extra=ARTIFACT)
    small: str = Field(default=CANARIES["small"], json_schema_extra=ARTIFACT)


@tool(idempotent=True)
async def report() -> Report:
    """A chart, a long list and a document."""
    return Report(summary="three things", chart=chart(), rows=rows(), pdf=pdf())


@tool(idempotent=True)
async def essay(characters: int) -> str:
    """A text of which nobody said that it is for people only."""
    return "".join(f"{n} " for n in range(characters))[:characters]


class Sum(BaseModel):
    """What came in."""

    kinds: list[str]
    digest: str


@tool(idempotent=True)
async def fingerprint(results: list[Any]) -> Sum:
    """Look at whole results, artifacts included."""
    first = results[0]
    digest = hashlib.sha256(str(first["chart"]).encode()).hexdigest() if isinstance(first, dict) else ""
    return Sum(kinds=[type(each).__name__ + str(len(each)) for each in results], digest=digest)


class Plot(BaseModel):
    """A chart, and nothing that is too heavy for a request."""

    chart: dict[str, Any] = Field(json_schema_extra=ARTIFACT)


@tool(idempotent=True)
async def linger() -> str:
    """Take longer than a direct call may."""
    await asyncio.sleep(1.5)
    return "done"


@tool(idempotent=True)
async def plot() -> Plot:
    """A chart alone."""
    return Plot(chart=chart())


@tool(idempotent=True)
async def narrate(ctx: ToolContext) -> str:
    """Show a text and points while they grow; the result is a word."""
    for number in range(3):
        await ctx.emit_artifact(stream_id="story", chunk=f"{number}, ", done=number == 2, artifact_type="text")
        await ctx.emit_artifact(stream_id="points", chunk=[number], done=number == 2)
        await ctx.emit_artifact(stream_id="sound", chunk=bytes([255, number]), done=number == 2)
        await ctx.emit_artifact(stream_id="unfinished", chunk=number)
    return "told"


def frames(first: int) -> list[dict[str, Any]]:
    """Some 3 MB, in pieces that a stream may have."""
    return [
        {"frame": n, "data": [round(each * 1.37, 2) for each in range(n, n + 9_000)]} for n in range(first, first + 40)
    ]


@tool(idempotent=True, timeout_s=60)
async def film(first: int, ctx: ToolContext) -> str:
    """Show a long list while it grows; the result is a word."""
    for frame in (shown := frames(first)):
        await ctx.emit_artifact(stream_id="frames", chunk=frame, done=frame is shown[-1], artifact_type="echarts")
    return "shot"


class Part(BaseModel):
    """Something that is not heavy by itself."""

    blob: str = Field(json_schema_extra=ARTIFACT)


@tool(idempotent=True)
async def many(name: str) -> dict[str, Part]:
    """Five of them."""
    return {f"{name}{number}": Part(blob=name * 20_000) for number in range(5)}


class Heavy(BaseModel):
    """Bytes, as an author writes them who has not read how pydantic is told to make base64 of them."""

    blob: bytes = Field(json_schema_extra=ARTIFACT)


@tool(idempotent=True, timeout_s=60)
async def heavy(megabytes: int) -> Heavy:
    """So many of them."""
    return Heavy(blob=b"\x01" * (megabytes << 20))


@tool(idempotent=True, timeout_s=60)
async def noise(megabytes: int, seed: int) -> Heavy:
    """So many of them, always others."""
    return Heavy(blob=noise_of(megabytes, seed))
