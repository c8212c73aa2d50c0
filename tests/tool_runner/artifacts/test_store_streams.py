"""Artifact streams that no field of a result contains: the artifact store assembles them."""

from typing import Any

from pydantic import BaseModel, Field

from contracts.artifacts import ArtifactRef
from contracts.runs.events import ArtifactStored
from runwire import ToolContext, tool
from services.shared.redaction.stored_values import from_blob
from tests.support.stores import Store
from tests.tool_runner.conftest import Planner, Serve, Start

LONG = [f"{number} " * 9_000 for number in range(8)]
ROWS = [[number, "x" * 40_000] for number in range(3)]
NOISE = bytes(range(256)) * 400


class Film(BaseModel):
    """A result of which one field has been shown in pieces."""

    title: str
    poster: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True})
    rows: str = Field(default="a field", json_schema_extra={"artifact": True})


async def test_streams_stand_beside_fields(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store
) -> None:
    """Small ones as values, large ones as references, after the fields; a field of the same name takes precedence."""

    @tool(idempotent=True)
    async def film(ctx: ToolContext) -> Film:
        await ctx.emit_artifact(stream_id="poster", chunk={"w": 1}, done=True)
        await ctx.emit_artifact(stream_id="word", chunk="a", artifact_type="text")
        for number, text in enumerate(LONG):
            await ctx.emit_artifact(
                stream_id="long.text", chunk=text, done=number == len(LONG) - 1, artifact_type="text/plain"
            )
        await ctx.emit_artifact(stream_id="word", chunk="b", done=True)
        await ctx.emit_artifact(stream_id="unfinished", chunk=1)
        for number, row in enumerate(ROWS):
            await ctx.emit_artifact(stream_id="table", chunk=row, done=number == len(ROWS) - 1)
        for number in range(0, len(NOISE), 51_200):
            await ctx.emit_artifact(
                stream_id="noise", chunk=NOISE[number : number + 51_200], done=number > 0, artifact_type="video/mp4"
            )
        await ctx.emit_artifact(stream_id="rows", chunk="a stream", done=True)
        await ctx.emit_artifact(stream_id="beep", chunk=b"\xff\xfe", done=True, artifact_type="binary")
        return Film(title="Metropolis", poster={"w": 1, "h": 2})

    serve_tools(film)
    await start_runner()
    run = await planner.request("film", {}, session_id="s1")
    finished = await planner.outcome(run)

    assert finished.observation == {
        "title": "Metropolis",
        "poster": "<artifact:dict stream=poster>",
        "rows": "<artifact:str size=7B>",
    }
    light = {"poster": {"w": 1, "h": 2}, "rows": "a field", "word": "ab"}
    assert {path: each for path, each in finished.artifacts.items() if path in light} == light
    assert list(finished.artifacts) == ["poster", "rows", "word", '["long.text"]', "table", "noise", "beep"]

    heavy = {path: ArtifactRef.model_validate(each) for path, each in finished.artifacts.items() if path not in light}
    whole = {'["long.text"]': "".join(LONG), "table": ROWS, "noise": NOISE, "beep": b"\xff\xfe"}
    for path, ref in heavy.items():
        found, body = await store.client.read("default", ref.artifact_id, limit=1 << 20, session="s1")
        assert from_blob(body, found) == whole[path]
    facts = {path: (ref.json_type, ref.items, ref.mime_type, ref.namespace) for path, ref in heavy.items()}
    types = {"table": None, '["long.text"]': "text/plain", "noise": "video/mp4", "beep": "bytes"}
    assert {path: ref.artifact_type for path, ref in heavy.items()} == types
    assert facts == {
        '["long.text"]': ("str", None, "text/plain; charset=utf-8", "film"),
        "table": ("list", 3, "application/json", "film"),
        "noise": ("bytes", None, "application/octet-stream", "film"),
        "beep": ("bytes", None, "application/octet-stream", "film"),
    }
    stored = [event for event in await planner.shown(run) if isinstance(event, ArtifactStored)]
    assert {event.field: (event.artifact_id, event.size, event.artifact_type) for event in stored} == {
        path: (ref.artifact_id, ref.size, types[path]) for path, ref in heavy.items()
    }
    assert len((await store.client.list("default", run=run)).artifacts) == 4


class Recording(BaseModel):
    """Bytes, marked and not, and a chart that was shown as it grew."""

    title: str
    sound: bytes
    cover: bytes = Field(json_schema_extra={"artifact": True})
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "bars"})


async def test_bytes_are_references_with_a_type(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store
) -> None:
    """However few, and annotated or not: no model reads bytes.

    A heavy field has the type of its stream.
    """

    @tool(idempotent=True)
    async def record(ctx: ToolContext) -> Recording:
        await ctx.emit_artifact(stream_id="bars", chunk={}, done=True, artifact_type="echarts")
        return Recording(title="Blue", sound=b"RIFF\xff", cover=b"%PDF-1.7\n\xff", chart={"bars": ["x"] * 20_000})

    @tool(idempotent=True)
    async def raw() -> bytes:
        return b"\xff" * 10

    serve_tools(record, raw)
    await start_runner()
    run = await planner.request("record", {})
    finished, whole = await planner.outcome(run), await planner.call("raw", {})

    assert finished.observation == {
        "title": "Blue",
        "sound": "<artifact:bytes size=5B>",
        "cover": "<artifact:bytes size=10B>",
        "chart": "<artifact:dict stream=bars>",
    }
    refs = {path: ArtifactRef.model_validate(each) for path, each in finished.artifacts.items()}
    assert {path: (ref.mime_type, ref.json_type, ref.artifact_type) for path, ref in refs.items()} == {
        "sound": ("application/octet-stream", "bytes", None),
        "cover": ("application/pdf", "bytes", None),
        "chart": ("application/json", "dict", "echarts"),
    }
    listed = (await store.client.list("default", run=run)).artifacts
    assert {each.ref.artifact_id for each in listed} == {ref.artifact_id for ref in refs.values()}
    assert {each.ref.artifact_type for each in listed} == {None, "echarts"}
    assert whole.observation == "<artifact:bytes size=10B>"
    assert (await store.client.read("default", whole.artifacts["$"]["artifact_id"], limit=100))[1] == b"\xff" * 10
