"""Images in results: cleaned before they are stored or shown, or dropped with a warning."""

import base64
import os
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from contracts.artifacts import ArtifactRef
from runwire import Tool, ToolContext, tool
from tests.support.images import CANARY, FORMATS, corners, drawn, encoded, with_metadata
from tests.support.stores import Store
from tests.tool_runner.conftest import Planner, Serve, Start

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
