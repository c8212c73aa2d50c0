"""What is stored of a result: artifact streams that no field contains, and images, cleaned or dropped."""

import base64
import os
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from contracts.artifacts import ArtifactRef
from contracts.runs.events import ArtifactStored
from runwire import Tool, ToolContext, tool
from services.shared.redaction.stored_values import from_blob
from tests.support.images import CANARY, FORMATS, corners, drawn, encoded, with_metadata
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


UPRIGHT = ["red", "lime", "blue", "white"]
ARTIFACT: dict[str, Any] = {"artifact": True}
PIECE = 60_000


class Shot(BaseModel):
    """Bytes travel as base64, which the schema says; the schema of the other text does not say what it is."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    note: str = "a word"
    photo: bytes = Field(json_schema_extra={**ARTIFACT, "format": "binary"})
    text: str = Field(default="", json_schema_extra=ARTIFACT)
    plain: str = Field(default="no image", json_schema_extra=ARTIFACT)


def heavy(kind: str) -> bytes:
    """An image that says more than it shows, too large for a message."""
    noise = drawn((200, 200))
    noise.frombytes(os.urandom(200 * 200 * 3))
    noise.paste(drawn((100, 100)), (0, 0))
    options: dict[str, Any] = {"comment": CANARY.encode(), "quality": 100} if kind == "jpeg" else {}
    if kind == "png":
        return encoded(noise, kind, exif=b"Exif\0\0" + CANARY.encode())
    return encoded(noise, kind, **options)


async def bytes_of(store: Store, value: Any) -> bytes:
    """An artifact's bytes, wherever they are."""
    if isinstance(value, str):
        return base64.b64decode(value)
    return (await store.client.read("default", ArtifactRef.model_validate(value).artifact_id, limit=1 << 24))[1]


async def kept_of(store: Store, run: str) -> list[bytes]:
    """Everything that is kept of a run."""
    listed = (await store.client.list("default", run=run)).artifacts
    return [(await store.client.read("default", each.ref.artifact_id, limit=1 << 24))[1] for each in listed]


@pytest.mark.parametrize("kind", FORMATS)
async def test_images_lose_what_they_say(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store, kind: str
) -> None:
    """As bytes and as a text; what is no image stays as it is."""

    @tool(idempotent=True)
    async def shoot() -> Shot:
        return Shot(photo=with_metadata(kind), text=base64.b64encode(with_metadata(kind)).decode())

    serve_tools(shoot)
    await start_runner()
    finished = await planner.call("shoot", {})
    assert CANARY.encode() in with_metadata(kind)
    assert finished.artifacts["plain"] == "no image"
    for path in ("photo", "text"):
        body = await bytes_of(store, finished.artifacts[path])
        assert CANARY.encode() not in body
        assert corners(body) == UPRIGHT
    assert not finished.warnings


def shooting(image: bytes, kind: str = "png") -> Tool[..., Any]:
    """A tool that shows an image as a field and as an assembled stream."""

    @tool(idempotent=True)
    async def shoot(ctx: ToolContext) -> Shot:
        for at in range(0, len(image), PIECE):
            piece, is_last = image[at : at + PIECE], at + PIECE >= len(image)
            await ctx.emit_artifact(stream_id="film", chunk=piece, done=is_last, artifact_type=f"image/{kind}")
        return Shot(photo=image)

    return shoot


@pytest.mark.parametrize("kind", ["png", "jpeg"])
async def test_heavy_images_are_kept_clean_alone(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store, kind: str
) -> None:
    """Both are references, and nothing that the run stores has metadata."""
    image = heavy(kind)
    assert CANARY.encode() in image
    assert len(image) > PIECE
    serve_tools(shooting(image, kind))
    await start_runner()
    run = await planner.request("shoot", {})
    finished = await planner.outcome(run)
    refs = [ArtifactRef.model_validate(finished.artifacts[path]) for path in ("photo", "film")]
    assert [(ref.mime_type, ref.json_type) for ref in refs] == [(f"image/{kind}", "bytes")] * 2
    kept = await kept_of(store, run)
    assert len(kept) == 2
    assert not [body for body in kept if CANARY.encode() in body]


async def test_what_cannot_be_cleaned_is_left_out(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store
) -> None:
    """An image that is cut short: the call succeeds, nothing of it is kept, and the run is warned."""
    serve_tools(shooting(heavy("png")[:90_000]))
    await start_runner()
    run = await planner.request("shoot", {})
    finished = await planner.outcome(run)
    assert (finished.status, list(finished.artifacts)) == ("succeeded", ["text", "plain"])
    assert finished.observation["note"] == "a word"
    assert [warning.partition(": it is")[0] for warning in finished.warnings] == [
        "image_dropped: photo of shoot",
        "image_dropped: film of shoot",
    ]
    assert not await kept_of(store, run)
