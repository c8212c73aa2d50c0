"""Artifact streams that no field of a result contains: the artifact store assembles them."""

import asyncio
import json
import threading
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel, Field

from contracts.artifacts.references import ArtifactRef
from contracts.runs.events import ArtifactStored
from contracts.tools.messages import REPLY_HEADER, ToolSpec
from contracts.wire import subjects
from runwire import ToolContext, tool
from services.shared.redaction.stored_values import from_blob
from tests.support.stores import Store
from tests.support.waiting import wait_until
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


async def test_bad_pieces_are_one_warning_of_the_call(planner: Planner, start_runner: Start, client: Client) -> None:
    """Whether the call succeeds or fails; the run's payload shows it."""

    async def on_call(message: Msg) -> None:
        wrong = json.loads(message.data)["args"].get("fails")
        for number in range(300):
            piece = {"stream_id": f"s{number}", "seq": 1, "chunk": "x", "done": True}
            await client.publish(message.reply, json.dumps(piece).encode(), headers={REPLY_HEADER: "artifact_chunk"})
        await client.publish(
            message.reply,
            b'{"reason": "no"}' if wrong else b"1",
            headers={REPLY_HEADER: "failure" if wrong else "result"},
        )

    await client.subscribe("tool.sloppy", "sloppy", cb=on_call)
    await start_runner(ToolSpec(name="sloppy"))
    outcomes = [await planner.call("sloppy", {}), await planner.call("sloppy", {"fails": True})]

    assert [outcome.status for outcome in outcomes] == ["succeeded", "failed"]
    for outcome in outcomes:
        (warning,) = outcome.warnings
        assert warning.startswith(
            "pieces of artifacts of sloppy were dropped: s0 (piece 0 is missing); s1 (piece 0 is missing);"
        )


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


async def test_a_stream_whose_pieces_have_expired_is_left_out(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store
) -> None:
    """The call succeeds without it."""
    gone = threading.Event()

    @tool(idempotent=True)
    async def slow(ctx: ToolContext) -> str:
        await ctx.emit_artifact(stream_id="old", chunk="x" * 40_000, done=True)
        await ctx.progress("half", 1)
        await asyncio.to_thread(gone.wait, 30)
        await ctx.emit_artifact(stream_id="new", chunk="new", done=True)
        return "done"

    serve_tools(slow)
    await start_runner()
    run = await planner.request("slow", {})

    async def is_there() -> bool:
        return [event.type for event in await planner.shown(run)][-1:] == ["tool_progress"]

    await wait_until(is_there, what="all of it is on the run's stream")
    await planner.bus.api(f"STREAM.PURGE.{subjects.RUNS}", {"filter": subjects.stream("default", run)})
    gone.set()
    finished = await planner.outcome(run)

    assert (finished.status, finished.observation, finished.artifacts) == ("succeeded", "done", {"new": "new"})
    assert not (await store.client.list("default", run=run)).artifacts


async def test_a_run_that_ends_is_waited_for_no_longer(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """Its call needs no outcome any more."""

    @tool(idempotent=True)
    async def vain(ctx: ToolContext) -> str:
        await ctx.emit_artifact(stream_id="word", chunk="a", done=True)
        return "done"

    serve_tools(vain)
    await start_runner(artifact_patience_s=60)
    run = await planner.request("vain", {})
    asked = asyncio.Event()

    async def on_asked(_: Any) -> None:
        asked.set()

    await planner.bus.nc.subscribe(subjects.artifact_assemble(), cb=on_asked)
    await asyncio.wait_for(asked.wait(), 10)
    await planner.end_run(run)

    async def is_gone() -> bool:
        return await planner.open_calls("vain") == 0

    await wait_until(is_gone, what="the call is acknowledged")
    assert not await planner.inbox(run)
